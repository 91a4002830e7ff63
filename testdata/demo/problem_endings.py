"""A last rule added to a problem: what becomes of its result before it is returned."""

import re

ENDINGS = {
    "int": [
        ("most", "A result above {k} is replaced by {k}.", ["if {v} > {k}:", "    return {k}", "return {v}"]),
        ("least", "A result below {k} is replaced by {k}.", ["if {v} < {k}:", "    return {k}", "return {v}"]),
        ("negative", "A negative result gives 0.", ["if {v} < 0:", "    return 0", "return {v}"]),
        ("odd", "An odd result is increased by {k}.", ["if {v} % 2 == 1:", "    {v} += {k}", "return {v}"]),
        ("zero", "A result of 0 is replaced by {k}.", ["if {v} == 0:", "    return {k}", "return {v}"]),
        ("modulo", "A result of at least {k} is reduced modulo {k}.", ["if {v} >= {k}:", "    {v} %= {k}", "return {v}"]),
    ],
    "list": [
        ("first", "If the result has more than {d} entries, only the first {d} are returned.", ["if len({v}) > {d}:", "    return {v}[:{d}]", "return {v}"]),
        ("last", "If the result has more than {d} entries, only the last {d} are returned.", ["if len({v}) > {d}:", "    return {v}[-{d}:]", "return {v}"]),
        ("reversed", "The result is reversed.", ["{v}.reverse()", "return {v}"]),
        ("sorted", "The result is sorted.", ["{v}.sort()", "return {v}"]),
        ("descending", "The result is sorted in descending order.", ["{v}.sort(reverse=True)", "return {v}"]),
        ("single", "If the result has a single entry, it is repeated.", ["if len({v}) == 1:", "    {v}.append({v}[0])", "return {v}"]),
        ("even", "If the result has an even number of entries, it is reversed.", ["if len({v}) % 2 == 0:", "    {v}.reverse()", "return {v}"]),
    ],
    "str": [
        ("empty", "An empty result gives '{w}'.", ["if not {v}:", '    return "{w}"', "return {v}"]),
        ("long", "A result of more than {k} characters is cut to {k}.", ["if len({v}) > {k}:", "    return {v}[:{k}]", "return {v}"]),
        ("short", "A result of fewer than {k} characters is reversed.", ["if len({v}) < {k}:", "    return {v}[::-1]", "return {v}"]),
        ("spaces", "If the result has a space, it is put in upper case.", ['if " " in {v}:', "    {v} = {v}.upper()", "return {v}"]),
        ("end", "The result ends with '{p}'.", ['{v} += "{p}"', "return {v}"]),
    ],
    "dict": [
        ("many", "A result of more than {d} entries gives an empty dict.", ["if len({v}) > {d}:", "    return {{}}", "return {v}"]),
        ("few", "A result of fewer than {d} entries gives an empty dict.", ["if len({v}) < {d}:", "    return {{}}", "return {v}"]),
        ("none", "An empty result gives None.", ["if not {v}:", "    return None", "return {v}"]),
    ],
}


def add_ending(r, p, share):
    """Gives a share of the problems a last rule, where their last line is `return EXPRESSION`."""
    kind = re.match(r"\w+", p["ret"]).group()
    *body, last = p["body"]
    if kind not in ENDINGS or not last.startswith("return ") or "None" in "".join(p["body"]) or r.random() > share:
        return p
    value = last.removeprefix("return ")
    if not value.isidentifier():
        body.append(f"value = {value}")
        value = "value"
    _, doc, lines = r.choice(ENDINGS[kind])
    words = dict(v=value, k=r.choice([10, 20, 50]), d=r.choice([2, 3]), w="none", p=r.choice("!*"))
    return {**p, "doc": p["doc"].rstrip() + " " + doc.format(**words), "body": body + [line.format(**words) for line in lines]}
