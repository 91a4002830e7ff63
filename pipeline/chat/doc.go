// Package chat renders conversations as prompts, by the chat template of an
// instruct model: a Jinja template in the model's folder, which transformers
// renders in apply_chat_template. What is rendered here is the same text, with
// the prompt for an answer at its end (add_generation_prompt).
//
// The text has the special tokens of the conversation in it, the one that
// begins a text included where the model wants one. It is encoded without any
// other: [tokenize.Tokenizer.EncodePlain].
//
// [Read] finds the template in a folder, [New] compiles it, [Parse] reads a
// conversation in OpenAI's form, [Template.Render] makes the prompt.
package chat
