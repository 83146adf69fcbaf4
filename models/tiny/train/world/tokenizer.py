"""Byte-level BPE in the manner of Qwen's, and klein's chat template."""
import numpy as np

TEXT_LENGTH = 64
VOCABULARY = 768  # rows of the embedding; the tokenizer uses nearly all of them
PAD, START, END, THINK, THOUGHT = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}")


def chat(prompt):
    return f"{START}user\n{prompt}{END}\n{START}assistant\n{THINK}\n\n{THOUGHT}\n\n"


def train_tokenizer(texts, path):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - 8, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tok.train_from_iterator(texts + ["user\n", "assistant\n", "\n\n"] * 1000, trainer)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in (PAD, START, END)])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in (THINK, THOUGHT)])
    tok.save(str(path))


class Words:
    """Prompts to rows of token ids, chat template applied, padded on the right."""

    def __init__(self, path):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(str(path))
        self.pad = self.tokenizer.token_to_id(PAD)

    def __call__(self, prompts):
        rows = np.full((len(prompts), TEXT_LENGTH), self.pad, np.int16)
        for row, coded in zip(rows, self.tokenizer.encode_batch([chat(p) for p in prompts], add_special_tokens=False)):
            ids = coded.ids[:TEXT_LENGTH]
            row[:len(ids)] = ids
        return rows
