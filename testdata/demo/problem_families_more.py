"""Families of problems over strings, words, dictionaries, matrices and single integers.

See problem_families for what a family is.
"""

from problem_families import family, problem, vars_of
from problem_parts import (CHAR_VARS, RESULT_NAMES, STR_LIST_NAMES, TEXT_NAMES, WORD_VARS, char_map, char_pred, int_map, int_pred,
                           ints, text, word_map, word_pred, words)


def word_vars(r):
    return r.choice(STR_LIST_NAMES), r.choice(WORD_VARS), r.choice(RESULT_NAMES)


def text_vars(r):
    return r.choice(TEXT_NAMES), r.choice(CHAR_VARS), r.choice(RESULT_NAMES)


def word_inputs(r):
    return (words(r, n=r.choice([0, 2, 3, 4, 5])),)


def text_inputs(r):
    return (text(r),)


@family
def filter_words(r):
    a, x, out = word_vars(r)
    (k, en, py), (k2, en2, py2) = word_pred(r), word_map(r)
    doc = r.choice([f"Return the words of {a} {en}, each {en2}.", f"Take the words of {a} {en} and return them {en2}."])
    body = [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {out}.append({py2.format(x=x)})", f"return {out}"]
    return problem([k, k2], r.choice([f"words_{k}", f"{k2}_{k}", "pick_words"]), [(a, "list[str]")], "list[str]", doc, body, word_inputs)


@family
def join_words(r):
    a, x, out = word_vars(r)
    (k, en, py), (k2, en2, py2) = word_pred(r), word_map(r)
    sep = r.choice([" ", ",", "-", "_", "/", "; ", "+"])
    doc = f"Join the words of {a} {en}, each {en2}, with '{sep}' between them."
    body = ["parts = []" if a != "parts" else "kept = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {'kept' if a == 'parts' else 'parts'}.append({py2.format(x=x)})",
            f'return "{sep}".join({"kept" if a == "parts" else "parts"})']
    return problem([k, k2], r.choice(["join_words", f"join_{k}"]), [(a, "list[str]")], "str", doc, body, word_inputs)


@family
def count_words(r):
    a, x, _ = word_vars(r)
    (k, en, py), (k2, en2, py2) = word_pred(r), word_pred(r)
    doc = f"Count the words of {a} {en}, and add the number of words {en2}."
    body = ["count = 0", f"for {x} in {a}:", f"    if {py.format(x=x)}:", "        count += 1", f"    if {py2.format(x=x)}:", "        count += 1", "return count"]
    return problem([k, k2], r.choice(["count_words", f"count_{k}"]), [(a, "list[str]")], "int", doc, body, word_inputs)


@family
def total_length(r):
    a, x, _ = word_vars(r)
    (k, en, py), (k2, en2, py2) = word_pred(r), int_map(r)
    doc = f"Return the sum of the lengths of the words of {a} {en}, each length {en2}."
    body = ["total = 0", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        n = len({x})", f"        total += {py2.format(x='n')}", "return total"]
    return problem([k, k2], r.choice(["total_length", f"length_{k}"]), [(a, "list[str]")], "int", doc, body, word_inputs)


@family
def extreme_word(r):
    a, x, _ = word_vars(r)
    k, en, py = word_pred(r)
    w, op = r.choice([("longest", ">"), ("shortest", "<")])
    doc = f"Return the {w} of the words of {a} {en}, the first one in a tie, or None."
    body = ["best = None", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        if best is None or len({x}) {op} len(best):", f"            best = {x}", "return best"]
    return problem([w, k], r.choice([f"{w}_word", f"{w}_{k}"]), [(a, "list[str]")], "str", doc, body, word_inputs)


@family
def first_word(r):
    a, x, _ = word_vars(r)
    (k, en, py), (k2, en2, py2) = word_pred(r), word_map(r)
    v = "none"
    doc = f"Find the first of the words of {a} {en} and return it {en2}, or '{v}' if there is none."
    body = [f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        return {py2.format(x=x)}", f'return "{v}"']
    return problem([k, k2, v], r.choice(["first_word", f"find_{k}"]), [(a, "list[str]")], "str", doc, body, word_inputs)


@family
def map_words(r):
    a, x, out = word_vars(r)
    (k, en, py), (k2, en2, py2), (k3, en3, py3) = word_pred(r), word_map(r), word_map(r)
    doc = f"Return {a} where the words {en} are {en2} and the others are {en3}."
    body = [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {out}.append({py2.format(x=x)})", "    else:", f"        {out}.append({py3.format(x=x)})", f"return {out}"]
    return problem([k, k2, k3], r.choice(["change_words", f"{k2}_or_{k3}"]), [(a, "list[str]")], "list[str]", doc, body, word_inputs)


@family
def words_of_text(r):
    a, _, out = text_vars(r)
    x = r.choice(WORD_VARS)
    if x == a:
        x = "w"
    (k, en, py), (k2, en2, py2) = word_pred(r), word_map(r)
    doc = f"Split {a} at spaces and return the words {en}, {en2}, joined by spaces again."
    body = [f"{out} = []", f"for {x} in {a}.split():", f"    if {py.format(x=x)}:", f"        {out}.append({py2.format(x=x)})", f'return " ".join({out})']
    return problem([k, k2], r.choice(["edit_words", f"keep_{k}"]), [(a, "str")], "str", doc, body, text_inputs)


@family
def count_chars(r):
    a, x, _ = text_vars(r)
    (k, en, py), (k2, en2, py2) = char_pred(r), char_pred(r)
    doc = r.choice([f"Return the number of {en} in {a} minus the number of {en2}.", f"Count the {en} in {a} and subtract the count of {en2}."])
    body = ["count = 0", f"for {x} in {a}:", f"    if {py.format(x=x)}:", "        count += 1", f"    if {py2.format(x=x)}:", "        count -= 1", "return count"]
    return problem([k, k2], r.choice(["count_chars", f"count_{k}"]), [(a, "str")], "int", doc, body, text_inputs)


@family
def filter_chars(r):
    a, x, out = text_vars(r)
    (k, en, py), (k2, en2, py2) = char_pred(r), char_map(r)
    w = r.choice(["keep", "remove"])
    doc = f"Return {a} with only the {en}, each {en2}." if w == "keep" else f"Return {a} without the {en}, every other character {en2}."
    neg = py.format(x=x) if w == "keep" else "not " + py.format(x=x)
    if w == "remove":
        body = [f'{out} = ""', f"for {x} in {a}:", f"    if {py.format(x=x)}:", "        continue", f"    {out} += {py2.format(x=x)}", f"return {out}"]
    else:
        body = [f'{out} = ""', f"for {x} in {a}:", f"    if {neg}:", f"        {out} += {py2.format(x=x)}", f"return {out}"]
    return problem([w, k, k2], r.choice([f"{w}_{k}", f"{w}_chars"]), [(a, "str")], "str", doc, body, text_inputs)


@family
def map_chars(r):
    a, x, out = text_vars(r)
    (k, en, py), (k2, en2, py2) = char_pred(r), char_map(r)
    doc = r.choice([f"Return {a} with its {en} {en2}.", f"Return {a} where the {en} are {en2}."])
    body = [f'{out} = ""', f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {out} += {py2.format(x=x)}", "    else:", f"        {out} += {x}", f"return {out}"]
    return problem([k, k2], r.choice([f"{k2}_{k}", f"change_{k}", "edit"]), [(a, "str")], "str", doc, body, text_inputs)


@family
def char_positions(r):
    a, x, out = text_vars(r)
    k, en, py = char_pred(r)
    k2, en2, py2 = int_map(r)
    doc = f"Return the list of the indices of the {en} in {a}, each {en2}."
    body = [f"{out} = []", f"for i, {x} in enumerate({a}):", f"    if {py.format(x=x)}:", f"        {out}.append({py2.format(x='i')})", f"return {out}"]
    return problem([k, k2], r.choice([f"positions_{k}", "indices"]), [(a, "str")], "list[int]", doc, body, text_inputs)


@family
def palindrome(r):
    a, x, _ = text_vars(r)
    (k, en, py), (k2, en2, py2) = char_pred(r), char_map(r)
    doc = f"Check whether the {en} of {a}, {en2}, read the same backwards."
    body = ['kept = ""', f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        kept += {py2.format(x=x)}", "return kept == kept[::-1]"]
    return problem([k, k2], r.choice(["is_palindrome", f"palindrome_{k}"]), [(a, "str")], "bool", doc, body, lambda r: (r.choice([text(r), r.choice(["level", "Noon", "abcba", "e1e", "toot 1"])]),))


@family
def count_dict(r):
    a, x, _ = vars_of(r)
    (k, en, py), (k2, en2, py2) = int_pred(r), int_map(r)
    doc = f"Return a dict that counts the numbers of {a} {en}, each {en2}."
    d = "counts"
    body = [f"{d} = {{}}", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        key = {py2.format(x=x)}", f"        {d}[key] = {d}.get(key, 0) + 1", f"return {d}"]
    return problem([k, k2], r.choice(["count_each", f"count_{k2}", "tally"]), [(a, "list[int]")], "dict[int, int]", doc, body, lambda r: (ints(r, -3, 12),))


@family
def count_chars_dict(r):
    a, x, _ = text_vars(r)
    (k, en, py), (k2, en2, py2) = char_pred(r), char_map(r)
    doc = f"Return a dict that counts the {en} of {a}, each {en2}."
    d = "counts"
    body = [f"{d} = {{}}", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        key = {py2.format(x=x)}", f"        {d}[key] = {d}.get(key, 0) + 1", f"return {d}"]
    return problem([k, k2], r.choice(["char_counts", f"count_{k}", "tally"]), [(a, "str")], "dict[str, int]", doc, body, text_inputs)


@family
def group_words(r):
    a, x, _ = word_vars(r)
    k, en, py = r.choice([("length", "length", "len({x})"), ("first", "first letter", "{x}[0]"), ("last", "last letter", "{x}[-1]"), ("upper", "first letter in upper case", "{x}[0].upper()"), ("lower", "lower case form", "{x}.lower()")])
    (k2, en2, py2), (k3, en3, py3) = word_pred(r), word_map(r)
    doc = f"Group the words of {a} {en2} by their {en}, each word {en3}."
    g = "groups"
    body = [f"{g} = {{}}", f"for {x} in {a}:", f"    if {py2.format(x=x)}:", f"        key = {py.format(x=x)}", f"        {g}.setdefault(key, []).append({py3.format(x=x)})", f"return {g}"]
    return problem([k, k2, k3], r.choice(["group_words", f"group_by_{k}"]), [(a, "list[str]")], "dict", doc, body, word_inputs)


@family
def group_ints(r):
    a, x, _ = vars_of(r)
    m = r.randint(2, 5)
    (k, en, py), (k2, en2, py2) = int_pred(r), int_map(r)
    doc = f"Group the numbers of {a} {en} by their remainder modulo {m}, each number {en2}."
    g = "groups"
    body = [f"{g} = {{}}", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        key = {x} % {m}", f"        {g}.setdefault(key, []).append({py2.format(x=x)})", f"return {g}"]
    return problem([str(m), k, k2], r.choice(["group", f"group_mod_{m}"]), [(a, "list[int]")], "dict[int, list[int]]", doc, body, lambda r: (ints(r),))


def str_int_dict(r):
    ks = []
    for _ in range(r.randint(1, 4)):
        ks.append(words(r, 1)[0].lower())
    return ({k: r.randint(-5, 30) for k in ks},)


@family
def filter_dict(r):
    a = "prices"
    (k, en, py), (k2, en2, py2) = int_pred(r), int_map(r)
    doc = f"Return a dict of the entries of {a} with values {en}, the values {en2}."
    out = r.choice(RESULT_NAMES)
    body = [f"{out} = {{}}", f"for key, value in {a}.items():", f"    if {py.format(x='value')}:", f"        {out}[key] = {py2.format(x='value')}", f"return {out}"]
    return problem([k, k2], r.choice(["filter_dict", f"keep_{k}", f"values_{k2}"]), [(a, "dict[str, int]")], "dict[str, int]", doc, body, str_int_dict)


@family
def dict_keys(r):
    a = "prices"
    (k, en, py), (k2, en2, py2) = int_pred(r), word_map(r)
    doc = f"Return the sorted list of the keys of {a} whose values are among those {en}, each key {en2}."
    body = ["keys = []", f"for key, value in {a}.items():", f"    if {py.format(x='value')}:", f"        keys.append({py2.format(x='key')})", "return sorted(keys)"]
    return problem([k, k2], r.choice(["keys_where", f"keys_{k}"]), [(a, "dict[str, int]")], "list[str]", doc, body, str_int_dict)


@family
def dict_total(r):
    a = "prices"
    (k, en, py), (k2, en2, py2) = word_pred(r), int_map(r)
    doc = f"Return the sum of the values of {a}, each {en2}, over the keys {en}."
    body = ["total = 0", f"for key, value in {a}.items():", f"    if {py.format(x='key')}:", f"        total += {py2.format(x='value')}", "return total"]
    return problem([k, k2], r.choice(["sum_values", f"total_{k}"]), [(a, "dict[str, int]")], "int", doc, body, str_int_dict)


def matrix(r):
    n = r.randint(2, 3)
    return ([ints(r, -5, 15, n=n) for _ in range(r.randint(1, 3))],)


@family
def matrix_rows(r):
    a = "matrix"
    k, en, py = r.choice([("sum", "sum", "sum(row)"), ("max", "largest number", "max(row)"), ("min", "smallest number", "min(row)"), ("first", "first number", "row[0]"), ("last", "last number", "row[-1]"), ("span", "range (largest minus smallest)", "max(row) - min(row)")])
    k2, en2, py2 = int_pred(r)
    out = r.choice(RESULT_NAMES)
    doc = f"Take the {en} of each row of {a} and return the list of those {en2}."
    body = [f"{out} = []", f"for row in {a}:", f"    value = {py}", f"    if {py2.format(x='value')}:", f"        {out}.append(value)", f"return {out}"]
    return problem([k, k2], r.choice([f"row_{k}", f"rows_{k}_{k2}"]), [(a, "list[list[int]]")], "list[int]", doc, body, matrix)


@family
def matrix_total(r):
    a = "matrix"
    (k, en, py), (k2, en2, py2) = int_pred(r), int_map(r)
    doc = f"Return the sum over all rows of {a} of the numbers {en}, each {en2}."
    body = ["total = 0", f"for row in {a}:", "    for x in row:", f"        if {py.format(x='x')}:", f"            total += {py2.format(x='x')}", "return total"]
    return problem([k, k2], r.choice(["matrix_sum", f"sum_{k}"]), [(a, "list[list[int]]")], "int", doc, body, matrix)


@family
def matrix_map(r):
    a = "matrix"
    (k, en, py), (k2, en2, py2) = int_pred(r), int_map(r)
    out = r.choice(RESULT_NAMES)
    doc = f"Return a list with, for each row of {a}, the list of its numbers {en}, each {en2}."
    body = [f"{out} = []", f"for row in {a}:", "    line = []", "    for x in row:", f"        if {py.format(x='x')}:", f"            line.append({py2.format(x='x')})", f"    {out}.append(line)", f"return {out}"]
    return problem([k, k2], r.choice(["matrix_map", f"rows_{k}"]), [(a, "list[list[int]]")], "list[list[int]]", doc, body, matrix)


@family
def range_sum(r):
    a = "n"
    (k, en, py), (k2, en2, py2) = int_pred(r), int_map(r)
    s = r.randint(1, 9)
    doc = f"Return the sum of the integers from {s} to {a} {en}, each {en2}."
    body = ["total = 0", f"for i in range({s}, {a} + 1):", f"    if {py.format(x='i')}:", f"        total += {py2.format(x='i')}", "return total"]
    return problem([k, k2], r.choice(["sum_to", f"sum_{k}_to"]), [(a, "int")], "int", doc, body, lambda r: (r.randint(5, 40),))


@family
def range_list(r):
    a, b = "start", "stop"
    (k, en, py), (k2, en2, py2) = int_pred(r), int_pred(r)
    doc = f"Return the list of the integers from {a} to {b} (both included) {en} and {en2}."
    out = r.choice(RESULT_NAMES)
    body = [f"{out} = []", f"for i in range({a}, {b} + 1):", f"    if {py.format(x='i')}:", f"        if {py2.format(x='i')}:", f"            {out}.append(i)", f"return {out}"]

    def inputs(r):
        s = r.randint(0, 20)
        return s, s + r.randint(0, 12)
    return problem([k, k2], r.choice(["integers", f"{k}_between"]), [(a, "int"), (b, "int")], "list[int]", doc, body, inputs)


@family
def digits(r):
    (k, en, py) = r.choice([p for p in [int_pred(r) for _ in range(8)] if p[0] in ("even", "odd", "positive", "divisible", "not_divisible")] or [("even", "that are even", "{x} % 2 == 0")])
    k2, en2, py2 = int_map(r)
    a = "n"
    doc = f"Return the sum of the digits of {a} {en}, each digit {en2}."
    body = ["total = 0", f"for c in str({a}):", "    d = int(c)", f"    if {py.format(x='d')}:", f"        total += {py2.format(x='d')}", "return total"]
    return problem([k, k2], r.choice(["digit_sum", f"{k}_digits"]), [(a, "int")], "int", doc, body, lambda r: (r.randint(1, 9999),))


@family
def steps(r):
    d = r.randint(2, 5)
    s = r.randint(1, 9)
    w = r.choice(["minus", "plus"])
    a = "n"
    lim = r.choice([0, 1, 2]) if w == "minus" else r.choice([20, 50, 100])
    if w == "minus":
        doc = f"Count the steps until {a} is at most {lim}: if it is divisible by {d} divide it by {d}, else subtract {s}."
        body = ["steps = 0", f"while {a} > {lim}:", f"    if {a} % {d} == 0:", f"        {a} //= {d}", "    else:", f"        {a} -= {s}", "    steps += 1", "return steps"]
    else:
        doc = f"Count the steps until {a} is at least {lim}: if it is divisible by {d} multiply it by {d}, else add {s}."
        body = ["steps = 0", f"while {a} < {lim}:", f"    if {a} % {d} == 0:", f"        {a} *= {d}", "    else:", f"        {a} += {s}", "    steps += 1", "return steps"]
    return problem([w, str(d), str(s), str(lim)], r.choice(["count_steps", "steps"]), [(a, "int")], "int", doc, body, lambda r: (r.randint(3, 60) if w == "minus" else r.randint(1, 30),))


@family
def recurrence(r):
    a = "n"
    f0, f1 = r.randint(0, 5), r.randint(1, 6)
    p, q = r.randint(1, 4), r.randint(1, 3)
    en = " plus ".join([f"{p} times the previous number" if p > 1 else "the previous number", f"{q} times the one before" if q > 1 else "the one before"])
    py = " + ".join([f"{p} * b" if p > 1 else "b", f"{q} * a" if q > 1 else "a"])
    doc = f"Return number n of the sequence that starts with {f0}, {f1}, where each number is {en}."
    body = [f"a, b = {f0}, {f1}", "for _ in range(n):", f"    a, b = b, {py}", "return a"]
    return problem([str(f0), str(f1), str(p), str(q)], r.choice(["sequence", "recurrence", "series"]), [(a, "int")], "int", doc, body, lambda r: (r.randint(0, 8),))


@family
def classify(r):
    a = "n"
    w1, w2, w3 = r.sample(["low", "high", "middle", "small", "large", "good", "bad", "hot", "cold", "yes", "no", "fizz", "buzz"], 3)
    (k, en, py), (k2, en2, py2) = int_pred(r), int_pred(r)
    doc = f"Return '{w1}' if {a} is one of the numbers {en}, else '{w2}' if it is one of those {en2}, and '{w3}' otherwise."
    body = [f"if {py.format(x=a)}:", f'    return "{w1}"', f"if {py2.format(x=a)}:", f'    return "{w2}"', f'return "{w3}"']
    return problem([k, k2], r.choice(["classify", f"label_{k}", "grade"]), [(a, "int")], "str", doc, body, lambda r: (r.randint(-9, 35),))


@family
def fizz(r):
    a = "n"
    d, e = r.sample(range(2, 8), 2)
    w1, w2 = r.sample(["fizz", "buzz", "ping", "pong", "tick", "tock", "foo", "bar"], 2)
    out = r.choice(RESULT_NAMES)
    doc = f"Return the list of the numbers from 1 to {a} as strings, with '{w1}' for those divisible by {d} and '{w2}' for the others divisible by {e}."
    body = [f"{out} = []", f"for i in range(1, {a} + 1):", f"    if i % {d} == 0:", f'        {out}.append("{w1}")', f"    elif i % {e} == 0:", f'        {out}.append("{w2}")', "    else:", f"        {out}.append(str(i))", f"return {out}"]
    return problem([w1, w2, str(d)], r.choice(["fizz_list", f"{w1}_{w2}"]), [(a, "int")], "list[str]", doc, body, lambda r: (r.randint(1, 9),))


@family
def two_numbers(r):
    a, b = "a", "b"
    k, en, py = r.choice([("less", f"{a} is less than {b}", f"{a} < {b}"), ("greater", f"{a} is greater than {b}", f"{a} > {b}"), ("equal", f"{a} equals {b}", f"{a} == {b}"), ("sum_even", f"{a} plus {b} is even", f"({a} + {b}) % 2 == 0"), ("divides", f"{a} is divisible by {b}", f"{a} % {b} == 0")])
    ops = [("sum", f"{a} plus {b}", f"{a} + {b}"), ("difference", f"{a} minus {b}", f"{a} - {b}"), ("product", f"{a} times {b}", f"{a} * {b}"), ("max", "the larger one", f"max({a}, {b})"), ("min", "the smaller one", f"min({a}, {b})"), ("gap", "their absolute difference", f"abs({a} - {b})")]
    (k2, en2, py2), (k3, en3, py3) = r.sample(ops, 2)
    k4, en4, py4 = int_map(r)
    doc = f"If {en} take {en2}, else take {en3}, and return it {en4}."
    body = [f"if {py}:", f"    value = {py2}", "else:", f"    value = {py3}", f"return {py4.format(x='value')}"]
    return problem([k, k2, k3, k4], r.choice(["combine", f"{k2}_or_{k3}"]), [(a, "int"), (b, "int")], "int", doc, body, lambda r: (r.randint(0, 20), r.randint(1, 20)))


@family
def sort_words(r):
    a, x, _ = word_vars(r)
    k, en, py = r.choice([("length", "length", "len({x})"), ("last", "last letter", "{x}[-1]"), ("lower", "lower case form", "{x}.lower()"), ("reversed", "reversed form", "{x}[::-1]")])
    (k2, en2, py2) = word_pred(r)
    rev = r.random() < 0.4
    doc = f"Return the words of {a} {en2}, sorted by their {en}{' in descending order' if rev else ''}."
    body = ["kept = []", f"for {x} in {a}:", f"    if {py2.format(x=x)}:", f"        kept.append({x})", f"return sorted(kept, key=lambda {x}: {py.format(x=x)}{', reverse=True' if rev else ''})"]
    return problem([k, k2, str(rev)], r.choice(["sort_words", f"sort_by_{k}"]), [(a, "list[str]")], "list[str]", doc, body, word_inputs)


@family
def tuples(r):
    a = "pairs"
    n = ("name", "count") if a in ("items", "entries") else ("a", "b")
    (k, en, py), (k2, en2, py2) = int_pred(r), int_map(r)
    w = r.choice(["list", "sum"])
    doc = f"Take the pairs of {a} whose first number is one of those {en} and return the {'sum' if w == 'sum' else 'list'} of their second numbers, each {en2}."
    p, q = n
    if w == "sum":
        body = ["total = 0", f"for {p}, {q} in {a}:", f"    if {py.format(x=p)}:", f"        total += {py2.format(x=q)}", "return total"]
    else:
        out = r.choice(RESULT_NAMES)
        body = [f"{out} = []", f"for {p}, {q} in {a}:", f"    if {py.format(x=p)}:", f"        {out}.append({py2.format(x=q)})", f"return {out}"]
    return problem([w, k, k2], r.choice(["pairs_where", f"seconds_{k}"]), [(a, "list[tuple[int, int]]")], "int" if w == "sum" else "list[int]", doc, body,
                   lambda r: ([(r.randint(-5, 25), r.randint(0, 20)) for _ in range(r.randint(1, 4))],))
