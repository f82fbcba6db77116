"""How the controlled trio was made: text, tokenizer, three models trained on it, evaluation."""
