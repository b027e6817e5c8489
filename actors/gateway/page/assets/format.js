// Numbers as people read them.

const NOTHING = "–";

/** A count: 950, 1.2k, 3.4M. */
export function count(value) {
  if (value == null) return NOTHING;
  if (value < 9.95 && !Number.isInteger(value)) return value.toFixed(1);
  if (value < 1e4) return String(Math.round(value));
  return value < 1e6 ? `${trimmed(value / 1e3)}k` : value < 1e9 ? `${trimmed(value / 1e6)}M` : `${trimmed(value / 1e9)}G`;
}

/** Milliseconds: 0.8 ms, 35 ms, 1.2 s. */
export function milliseconds(value) {
  if (value == null) return NOTHING;
  if (value >= 1e3) return `${trimmed(value / 1e3)} s`;
  if (value === 0) return "0 ms";
  return value < 9.95 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`;
}

/** A time that has passed, in seconds: 4 s, 3 min, 2 h 10 min, 5 d. */
export function lasting(seconds) {
  if (seconds == null) return NOTHING;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

/** How long ago a life ended and why. It `died`, unless it ended as it was told to, as in a rolling restart. */
export function ending(lastExit, ageS) {
  return `${wasTold(lastExit) ? "ended" : "died"} ${lasting(ageS)} ago: ${lastExit}`;
}

/** Whether a life ended as it was told to. */
export function wasTold(lastExit) {
  return lastExit === "exit status 0";
}

/** Bytes: 512 kB, 48 MB, 1.4 GB. */
export function bytes(value) {
  if (value == null) return NOTHING;
  if (value < 1e6) return `${Math.round(value / 1e3)} kB`;
  return value < 1e9 ? `${Math.round(value / 1e6)} MB` : `${trimmed(value / 1e9)} GB`;
}

/** A share from 0 to 1: 42 %. */
export function share(value) {
  return value == null ? NOTHING : `${Math.round(value * 100)} %`;
}

/** The time of a day, to the second. */
export function clock(date) {
  return date.toLocaleTimeString([], { hour12: false });
}

function trimmed(value) {
  return value < 99.5 ? value.toFixed(1).replace(/\.0$/, "") : String(Math.round(value));
}
