"""The texts of the golden files: a corpus to train on and adversarial strings, all made here from a seed."""

import random

PROSE = [
    "The quick brown fox jumps over the lazy dog, doesn't it? I'm sure they'll say we've seen it; she'd agree.",
    "Speculative sampling drafts several tokens and verifies them in one pass of the larger model.",
    "It's 10:45 PM on 2024-03-17 and the price rose by 3.14159% to $1,234,567.89 (about 1e6).",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au delà des îles.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; die Straße heißt Weißgerbergasse.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío. ¿Añoraba a su querido cachorro?",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, мир! Ещё раз: ёлка.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ο ΟΔΥΣΣΕΥΣ γύρισε σπίτι.",
    "敏捷的棕色狐狸跳过了懒狗。今天天气很好，我们去公园散步吧！価格は1,000円です。",
    "いろはにほへと ちりぬるを。カタカナとひらがな、ｶﾅ、ー長音。東京都は大きい。",
    "다람쥐 헌 쳇바퀴에 타고파. 안녕하세요 세계! 한국어 형태소 분석은 어렵다.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. ١٢٣٤٥ كتاب",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם עֲלֵיכֶם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। नमस्ते दुनिया १२३",
    "นายสังฆภัณฑ์ เฮงพิทักษ์ฝั่ง ผู้เฒ่าซึ่งมีอาชีพเป็นฅนขายฃวด",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ILIK ısı.",
    "Đây là một câu tiếng Việt có nhiều dấu: ổ, ữ, ậ, ỗ, ặ.",
    "👨‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 skin, 🇩🇪🇫🇷 regional, 1️⃣ keycap, ☺️ and ☺ 🤷🏿‍♀️",
    "H₂O and E=mc², ½ + ¼ = ¾, ⅷ, ①②③, ∑∞∫√, ﬁne ﬂuﬀy ligatures, ™ © ® № ㎏ ㍿",
]

CODE = [
    "def greater_than(xs: list[int], limit: int) -> list[int]:\n    \"\"\"Return the numbers of xs above limit.\n\n    >>> greater_than([1, 5, 10], 4)\n    [5, 10]\n    \"\"\"\n    return [x for x in xs if x > limit]\n",
    "class Stack:\n\tdef __init__(self):\n\t\tself.items = []\n\n\tdef push(self, item):\n\t\tself.items.append(item)\n",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; } // dot product\r\n",
    "func (s *Stream) Push(id int32) string {\n\tif id < 0 {\n\t\treturn \"\"\n\t}\n\treturn s.take()\n}\n",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name HAVING COUNT(*) > 1;",
    "<html><body class=\"main\"><p>&nbsp;Hello</p></body></html>",
    "{\"key\": [1, 2.5e-3, null, true], \"other\": {\"nested\": \"va\\\"lue\\n\"}}",
    "https://example.org/path/to/file_name-v2.tar.gz?query=1&other=%20#fragment me@example.org",
    "x = 0xDEADBEEF; y = 0b1011_0001; z = 1_000_000; w = .5e+10",
    "#!/bin/sh\nset -eu\nfor f in *.txt; do\n  echo \"$f\" | tr a-z A-Z\ndone\n",
]

# Strings that look for trouble, one kind a line.
SPECIAL = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n ", "\n ", " \n", "   \n   \n   ", "\u00a0", "\u3000", "\u2028", "\u2029",
    "\u0085", "\u200b", "\ufeff", "\u180e", "\u1680", "\u2002\u2003", "\x00", "\x00\x00a\x00", "\x01\x02\x1f\x7f", "\x0b\x0c", "\x1b[31mred\x1b[0m",
    "\u0080\u0081\u009f", "\ud7ff\ue000", "\uffff\ufffe\ufffd", "\U00010000\U0010ffff", "\U0001f600", "\ufffd\ufffd", "\ufdd0",
    "a", "a ", " a", " a ", "  a  ", "a  b", "a   b", "a\nb", "a\r\nb", "a\n\nb", "a \n b", "a\tb", "a\u00a0b", "a \u00a0 b", "a\u2028b", "a\u3000b", "a\u0085b",
    "don't", "DON'T", "I'm I'M i'm", "we've WE'VE We'Ve", "they'll THEY'LL", "she'd SHE'D", "you're YOU'RE yOU'rE", "it's IT'S", "'s 't 're 've 'm 'll 'd",
    "'S 'T 'RE 'VE 'M 'LL 'D", "'\u017f x'\u017f '\u017fe", "rock 'n' roll 'tis", "l'été qu'il aujourd'hui", "''s '''s", "a'", "'", "'\n's", "'s's's", "don\u2019t it\u2019s",
    "1", "12", "123", "1234", "12345", "123456789012345678901234567890", "1 2 3", "1,234.56", "v1.2.3", "3rd 4th", "٣٤٥ ३४५ ３４５", "½¾²³", "Ⅷ ⅷ ㊿", "1a2b3c", "a1 b22 c333 d4444",
    "!", "!!", "!!!???", " !", "! ", "a!b", "...", "…", "--", "——", "¿¡", "«»", "“quoted” ‘single’", "(a)[b]{c}<d>", "a,b;c:d", "_", "__init__", "snake_case_name", "camelCaseName", "HTMLParser",
    "\u00e9", "e\u0301", "\u0301", "\u0301\u0301a", "a\u0301\u0323", "a\u0323\u0301", "\u1e69 s\u0323\u0307 s\u0307\u0323", "\u212b \u00c5 A\u030a", "\u2126 \u03a9", "\u0344", "\u0958", "\u0915\u093c",
    "\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u3131\u314f", "q\u0307\u0323", "o\u0302\u0301 \u1ed1", "\ufb01 \ufb06 \ufb2a", "\u01c4 \u01c5 \u01c6", "\u1f71 \u03ac",
    "a" + "\u0301" * 40, "a" + "\u0323\u0301" * 35 + "b", "\u0301" * 33, "e\u0301\u0327\u0301\u0327", "\u0f71\u0f72\u0f74", "\u05e9\u05c1\u05bc \u05bc\u05c1", "\u0b47\u0b3e \u0bc6\u0bbe", "\u1b05\u1b35", "\U00011131\U00011127", "\U000114b9\U000114b0", "\U0001d15e",
    "\U00011935\U00011930", "\U00011938", "\u0c3c\u0323", "\u1abf\u0323", "\u32ff", "\ua7f2\uab69",
    "İ I ı i", "ẞ ß", "ς σ Σ ΑΣ", "ΌΔΟΣ", "Ǆ ǅ ǆ", "ŉ", "\u1e9b\u0323", "\u212a", "\u017f", "Ⓐ ⓐ", "\ua7cb \ua7da \u1c89", "\U00010d50\U00010d70", "\U00016ea0",
    "中", "中文", "中 文", "中文abc中文", "日本語テキスト", "한국어", "中1文2", "。、！？", "ー", "〇", "㐀", "\U00020000", "\U0002ebf0", "\uf900", "\U0002f800",
    "עברית", "العربية", "\u200f\u200eabc", "\u202eabc\u202c", "ab\u0640c", "لا", "ﷺ",
    "👨\u200d👩\u200d👧\u200d👦", "👨\u200d", "\u200d", "\ufe0f", "☺\ufe0f", "🏳\ufe0f\u200d🌈", "🇩🇪", "🇩", "👍🏽", "🏽", "a👍b", "👍👍👍", "1\ufe0f\u20e3",
    "▁", "▁▁", "▁a", "a▁b", " ▁ a", "Ġ", "Ġa", "ĊĉĀ", "Ł", "ÿ", "<0x0A>", "<0x41><0xE2>", "<0xZZ>", "<unk>", "##a", "</w>", "a</w>b", "[UNK]", "[CLS] a [SEP]", "[MASK]", "[mask]",
    "<s>", "</s>", "<s>a</s>", " <s> a </s> ", "<s><s>", "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "  <|endoftext|>  ", "<|endoftext|><|endoftext|>", "<|endoftext|", "<|endoftext|>>", "<<|endoftext|>", "\n<|endoftext|>\n",
    "<|begin_of_text|>a<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n", "<|IM_START|>",
    "<pad>", "x<mask>y", "x <mask> y", "x  <mask>  y", "<mask><mask>", "  <mask>", "<left>", "a  <left>  b", "a  <right>  b", "a\n\n<both>\n\nb", "<right> <left>", "<right>  <both>", "word wordy sword word", "word.word,word", "wörd word\u0301", "WORD Word", "  wORD ", "_word word_", "Tag TAG tag", "a Tag b", "Ｔａｇ", "Caf\u00e9 CAFE\u0301 cafe",
    "a" * 99, "a" * 100, "a" * 101, "A" * 300, "ab" * 200, "中" * 120, "é" * 130, "1" * 200, " " * 100, "\n" * 50, "!" * 150, "x " * 100, "pneumonoultramicroscopicsilicovolcanoconiosis" * 5, "\u200d" * 30, "▁" * 30, "ß" * 60, "👍" * 60,
    "def f():\n\treturn 1\n", "    indented\n        more\n", "trailing   ", "   leading", "if x:\n    pass\n\n\n", "a\n    b", "a   \n   b", "\n\n\n   \n\n a", "\t \t a", " \t", "a \t b", "\r", "a\rb", "\n\r\n\r",
    "\u0e33 \u0e4d\u0e32", "\u0eb3", "ๆ", "\u0915\u094d\u0937", "\u1031\u1004\u103a", "ཀྵ", "\u0344a", "ⅩⅡ", "ª º ᵃ", "\u16a0\u16a1", "\U00010330", "\U0001d538\U0001d7d8", "\U0001f100", "🀄", "\U000e0041", "\U000f0000", "\u20ac£¥₿", "+-×÷=≠", "^`~|", "a^b`c~d|e", "$x$ + $y$", "\\alpha \\n", "%d%s", "@user #tag", "C++ C# F#",
]

ADDED = ["<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<pad>", "<mask>", "<left>", "<right>", "<both>", "word", "Tag", "[SEP]", "[MASK]", "[UNK]", "<0x0A>", "▁", "Ġ"]

SPACE = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "", ""]

# Blocks from which single characters are drawn.
BLOCKS = [(0x20, 0x7E), (0, 0x1F), (0x80, 0xFF), (0x100, 0x24F), (0x250, 0x36F), (0x300, 0x345), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2460, 0x26FF), (0x3000, 0x30FF), (0x3200, 0x33FF), (0x4E00, 0x4FFF), (0xA720, 0xA7FF), (0xAC00, 0xACFF), (0xE000, 0xE010), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFD), (0x10000, 0x101FF), (0x10D00, 0x10DFF), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F64F), (0x20000, 0x200FF), (0x2EBF0, 0x2EC00), (0xE0000, 0xE01EF)]


def words():
    return [w for line in PROSE for w in line.split()]


def training(seed):
    """Lines to train on: the snippets above in many orders, so that frequent words become tokens and rare characters do not."""
    rng = random.Random(seed)
    lines = []
    vocabulary = words()
    for _ in range(600):
        lines.append(" ".join(rng.choice(vocabulary) for _ in range(rng.randint(3, 12))))
        lines.append(rng.choice(PROSE))
        lines.append(rng.choice(CODE))
        lines.append("%s = %d%s" % (rng.choice("abcxyz"), rng.randint(0, 10 ** rng.randint(1, 9)), rng.choice(SPACE)))
    return lines


def character(rng):
    lo, hi = rng.choice(BLOCKS)
    return chr(rng.randint(lo, hi))


def fragment(rng, vocabulary):
    kind = rng.randrange(12)
    if kind < 4:
        return rng.choice(vocabulary)
    if kind == 4:
        return rng.choice(ADDED)
    if kind == 5:
        return rng.choice(SPECIAL)[:40]
    if kind == 6:
        code = rng.choice(CODE)
        at = rng.randrange(len(code))
        return code[at : at + rng.randint(1, 30)]
    if kind == 7:
        return str(rng.randint(0, 10 ** rng.randint(1, 12)))
    if kind == 8:
        return rng.choice(vocabulary).upper()
    if kind == 9:
        return character(rng) * rng.randint(1, 4)
    return "".join(character(rng) for _ in range(rng.randint(1, 6)))


def texts(seed, count):
    """SPECIAL, the snippets, and random compositions up to count."""
    rng = random.Random(seed)
    vocabulary = words()
    out = list(SPECIAL)
    while len(out) < count - len(PROSE) - len(CODE):
        parts = []
        for _ in range(rng.randint(1, 8)):
            parts.append(fragment(rng, vocabulary))
            parts.append(rng.choice(SPACE))
        out.append("".join(parts))
    return out + PROSE + CODE
