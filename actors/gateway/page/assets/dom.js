// Small helpers for the document. Text is only ever set as text, so nothing that a server or a model says becomes markup.

export const byId = (id) => document.getElementById(id);

/** A new element with a class and children, which are nodes or texts. */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Set the text of an element, if it is another one: what a reader has selected stays selected. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make the children of `parent` those of `items`, in order: existing ones are kept by key, new ones are made, others removed. */
export function keep(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of known.values()) child.remove();
}
