"""What the gateway knows of the served model's text: its tokenizer, its template, its end tokens, by kind of model."""
