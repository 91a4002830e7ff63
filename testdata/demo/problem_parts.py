"""The small parts that problems are composed of: predicates, maps and inputs.

A part is a pair (English, Python); `{x}` stands for the element. Every part
also has a kind, the word that names it in a problem's key: held-out problems
are held out by kinds of parts together, never by the constants in them alone.
"""

INT_NAMES = ["numbers"]
STR_LIST_NAMES = ["words"]
TEXT_NAMES = ["text"]
RESULT_NAMES = ["result"]
INT_VARS = ["x"]
WORD_VARS = ["w"]
CHAR_VARS = ["c"]
LETTERS = "aest"
WORDS = """apple bear cat dog egg fish grape hat ink jam kite lamp moon nest oak pear queen rain
sun tree urn van wolf yarn zoo ant ball cup door ear fork gate hill ice jar key leaf map nut
owl pen quiz rose star tent use vest wind box milk gold sand Alice Bob Carol Dan Eve Rome Paris
Oslo Lima NASA USA TV level noon radar hello world code test data list stone river green blue
red small large quick bread salt sugar a an at be by do go hi in it me no of on to up we""".split()


def int_pred(r):
    """A predicate on an integer: (kind, English for 'the ... numbers', Python)."""
    k = r.choice([5, 10, 20])
    d = r.choice([3, 5, 7])
    a, b = r.choice([(0, 10), (5, 15), (10, 20)])
    return r.choice([
        ("even", "that are even", "{x} % 2 == 0"),
        ("odd", "that are odd", "{x} % 2 == 1"),
        ("positive", "that are positive", "{x} > 0"),
        ("negative", "that are negative", "{x} < 0"),
        ("greater", f"greater than {k}", f"{{x}} > {k}"),
        ("less", f"less than {k}", f"{{x}} < {k}"),
        ("at_least", f"that are at least {k}", f"{{x}} >= {k}"),
        ("at_most", f"that are at most {k}", f"{{x}} <= {k}"),
        ("divisible", f"divisible by {d}", f"{{x}} % {d} == 0"),
        ("not_divisible", f"not divisible by {d}", f"{{x}} % {d} != 0"),
        ("last_digit", f"whose last digit is {d}", f"abs({{x}}) % 10 == {d}"),
        ("not_equal", f"different from {k}", f"{{x}} != {k}"),
        ("between", f"between {a} and {b}", f"{a} <= {{x}} <= {b}"),
        ("outside", f"outside the range {a} to {b}", f"{{x}} < {a} or {{x}} > {b}"),
        ("two_digits", "with two digits", "10 <= abs({x}) <= 99"),
    ])


def int_map(r):
    """A map on an integer: (kind, English for 'its ...', Python)."""
    k = r.choice([2, 5, 10])
    d = r.choice([3, 4, 10])
    return r.choice([
        ("squared", "squared", "{x} * {x}"),
        ("cubed", "cubed", "{x} ** 3"),
        ("doubled", "doubled", "{x} * 2"),
        ("plus", f"increased by {k}", f"{{x}} + {k}"),
        ("minus", f"decreased by {k}", f"{{x}} - {k}"),
        ("times", f"multiplied by {d}", f"{{x}} * {d}"),
        ("negated", "negated", "-{x}"),
        ("absolute", "taken as absolute value", "abs({x})"),
        ("modulo", f"reduced modulo {d}", f"{{x}} % {d}"),
        ("halved", "halved and rounded down", "{x} // 2"),
        ("from", f"subtracted from {k}", f"{k} - {{x}}"),
        ("capped", f"capped at {k}", f"min({{x}}, {k})"),
    ])


def word_pred(r):
    """A predicate on a word: (kind, English, Python)."""
    k = r.choice([2, 3, 4])
    c = r.choice(LETTERS)
    return r.choice([
        ("longer", f"longer than {k} characters", f"len({{x}}) > {k}"),
        ("shorter", f"shorter than {k} characters", f"len({{x}}) < {k}"),
        ("length", f"with exactly {k} characters", f"len({{x}}) == {k}"),
        ("starts", f"that start with '{c}'", f'{{x}}.startswith("{c}")'),
        ("ends", f"that end with '{c}'", f'{{x}}.endswith("{c}")'),
        ("contains", f"that contain '{c}'", f'"{c}" in {{x}}'),
        ("lacks", f"that do not contain '{c}'", f'"{c}" not in {{x}}'),
        ("upper", "in upper case", "{x}.isupper()"),
        ("lower", "in lower case", "{x}.islower()"),
        ("vowel", "that start with a vowel", '{x}[0] in "aeiouAEIOU"'),
        ("even_length", "of even length", "len({x}) % 2 == 0"),
        ("odd_length", "of odd length", "len({x}) % 2 == 1"),
        ("palindrome", "that are palindromes", "{x} == {x}[::-1]"),
    ])


def word_map(r):
    """A map from a word to a string: (kind, English, Python)."""
    c = r.choice(LETTERS)
    k = r.randint(2, 3)
    p = r.choice("!*")
    return r.choice([
        ("upper", "in upper case", "{x}.upper()"),
        ("lower", "in lower case", "{x}.lower()"),
        ("capital", "capitalized", "{x}.capitalize()"),
        ("reversed", "reversed", "{x}[::-1]"),
        ("suffix", f"followed by '{p}'", f'{{x}} + "{p}"'),
        ("prefix", f"preceded by '{p}'", f'"{p}" + {{x}}'),
        ("twice", f"repeated {k} times", f"{{x}} * {k}"),
        ("first", f"cut to its first {k} characters", f"{{x}}[:{k}]"),
        ("last", f"cut to its last {k} characters", f"{{x}}[-{k}:]"),
        ("without", f"without the letter '{c}'", f'{{x}}.replace("{c}", "")'),
        ("swap", "with its case swapped", "{x}.swapcase()"),
    ])


def char_pred(r):
    """A predicate on a character: (kind, English plural noun, Python)."""
    c = r.choice(LETTERS)
    d = r.choice([e for e in LETTERS if e != c])
    return r.choice([
        ("vowels", "vowels", '{x}.lower() in "aeiou"'),
        ("digits", "digits", "{x}.isdigit()"),
        ("letters", "letters", "{x}.isalpha()"),
        ("upper", "upper case letters", "{x}.isupper()"),
        ("lower", "lower case letters", "{x}.islower()"),
        ("spaces", "spaces", '{x} == " "'),
        ("equal", f"characters equal to '{c}'", f'{{x}} == "{c}"'),
        ("not_equal", f"characters other than '{c}'", f'{{x}} != "{c}"'),
        ("either", f"characters equal to '{c}' or '{d}'", f'{{x}} in "{c}{d}"'),
        ("after", f"characters that come after '{c}'", f'{{x}} > "{c}"'),
    ])


def char_map(r):
    """A map from a character to a string: (kind, English, Python)."""
    k = r.randint(2, 3)
    p = r.choice("!*")
    return r.choice([
        ("upper", "in upper case", "{x}.upper()"),
        ("lower", "in lower case", "{x}.lower()"),
        ("repeat", f"repeated {k} times", f"{{x}} * {k}"),
        ("replace", f"replaced by '{p}'", f'"{p}"'),
        ("suffix", f"followed by '{p}'", f'{{x}} + "{p}"'),
        ("prefix", f"preceded by '{p}'", f'"{p}" + {{x}}'),
        ("swap", "with its case swapped", "{x}.swapcase()"),
    ])


def ints(r, lo=-9, hi=30, n=None):
    """A list of integers for examples and tests."""
    return [r.randint(lo, hi) for _ in range(n if n is not None else r.randint(3, 6))]


def words(r, n=None):
    """A list of words for examples and tests."""
    out = []
    for _ in range(n if n is not None else r.randint(2, 5)):
        w = r.choice(WORDS)
        out.append(w.upper() if r.random() < 0.12 else w)
    return out


def text(r):
    """A short sentence with some digits and capitals."""
    out = words(r, r.randint(1, 3))
    if r.random() < 0.5:
        out.insert(r.randint(0, len(out)), str(r.randint(1, 99)))
    return " ".join(out)
