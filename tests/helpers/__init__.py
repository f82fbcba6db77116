"""What tests share; README.md says what each module gives, with an example."""
