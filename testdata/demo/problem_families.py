"""Families of problems over lists of integers, arithmetic and conditionals.

A family is a function of a random generator that gives a dict with: ops (the
kinds of its parts, the unit that is held out), name, args [(name, type)], ret,
doc (a sentence or two), body (lines of Python with their indentation relative
to the function) and inputs (a function that draws one argument tuple).
"""

from problem_parts import INT_NAMES, INT_VARS, RESULT_NAMES, int_map, int_pred, ints

FAMILIES = {}


def family(fn):
    FAMILIES[fn.__name__] = fn
    return fn


def problem(ops, name, args, ret, doc, body, inputs):
    return dict(ops=ops, name=name, args=args, ret=ret, doc=doc, body=body, inputs=inputs)


def vars_of(r):
    """Names of the argument, the loop variable and the result."""
    return r.choice(INT_NAMES), r.choice(INT_VARS), r.choice(RESULT_NAMES)


def guard(r, a, zero):
    """An optional extra rule for empty lists: (kind, sentence, lines)."""
    if r.random() < 0.65:
        return "none", "", []
    v = r.choice(["-1", "0", "100", "None"]) if zero == "int" else "[-1]"
    return "guard", f" An empty list gives {v}.", [f"if not {a}:", f"    return {v}"]


def list_inputs(r):
    return lambda r: (ints(r, n=r.choice([0, 1, 3, 4, 5, 6, 6])),)


@family
def filter_list(r):
    a, x, out = vars_of(r)
    k, en, py = int_pred(r)
    g, gs, gl = guard(r, a, "list")
    doc = r.choice([f"Return the numbers of {a} {en}, in order.", f"Keep only the numbers of {a} {en}."])
    body = gl + [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {out}.append({x})", f"return {out}"]
    return problem([k, g], r.choice([f"keep_{k}", f"filter_{k}", "select"]), [(a, "list[int]")], "list[int]", doc + gs, body, list_inputs(r))


@family
def remove_list(r):
    a, x, out = vars_of(r)
    k, en, py = int_pred(r)
    body = [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", "        continue", f"    {out}.append({x})", f"return {out}"]
    return problem([k], r.choice([f"remove_{k}", f"drop_{k}"]), [(a, "list[int]")], "list[int]", f"Remove from {a} the numbers {en}.", body, list_inputs(r))


@family
def map_list(r):
    a, x, out = vars_of(r)
    k, en, py = int_map(r)
    k2, en2, py2 = int_map(r)
    doc = f"Return a list with every number of {a} {en}, then {en2}."
    body = [f"{out} = []", f"for {x} in {a}:", f"    {x} = {py.format(x=x)}", f"    {x} = {py2.format(x=x)}", f"    {out}.append({x})", f"return {out}"]
    return problem([k, k2], r.choice(["transform", f"map_{k}", f"{k}_{k2}"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def filter_map(r):
    a, x, out = vars_of(r)
    k, en, py = int_pred(r)
    k2, en2, py2 = int_map(r)
    doc = r.choice([f"Return the numbers of {a} {en}, each {en2}.", f"Take the numbers of {a} {en} and return them {en2}."])
    if r.random() < 0.2:
        body = [f"return [{py2.format(x=x)} for {x} in {a} if {py.format(x=x)}]"]
    else:
        body = [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {out}.append({py2.format(x=x)})", f"return {out}"]
    return problem([k, k2], r.choice([f"{k2}_{k}", f"{k}_{k2}", "pick_and_map"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def map_if_else(r):
    a, x, out = vars_of(r)
    k, en, py = int_pred(r)
    (k2, en2, py2), (k3, en3, py3) = int_map(r), int_map(r)
    doc = f"Return a list where the numbers of {a} {en} are {en2} and the others are {en3}."
    body = [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {out}.append({py2.format(x=x)})", "    else:",
            f"        {out}.append({py3.format(x=x)})", f"return {out}"]
    return problem([k, k2, k3], r.choice(["map_either", f"{k2}_or_{k3}", f"change_{k}"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def sum_filter_map(r):
    a, x, _ = vars_of(r)
    k, en, py = int_pred(r)
    k2, en2, py2 = int_map(r)
    g, gs, gl = guard(r, a, "int")
    doc = r.choice([f"Return the sum of the numbers of {a} {en}, each {en2}.", f"Add up the numbers of {a} {en}, each {en2}."])
    body = gl + ["total = 0", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        total += {py2.format(x=x)}", "return total"]
    return problem([k, k2, g], r.choice([f"sum_{k}", f"sum_{k2}_{k}", "total"]), [(a, "list[int]")], "int", doc + gs, body, list_inputs(r))


@family
def product_filter(r):
    a, x, _ = vars_of(r)
    k, en, py = int_pred(r)
    g, gs, gl = guard(r, a, "int")
    body = gl + ["product = 1", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        product *= {x}", "return product"]
    return problem([k, g], r.choice([f"product_{k}", "product"]), [(a, "list[int]")], "int", f"Return the product of the numbers of {a} {en}.{gs}", body, list_inputs(r))


@family
def count_filter(r):
    a, x, _ = vars_of(r)
    (k, en, py), (k2, en2, py2) = int_pred(r), int_pred(r)
    doc = r.choice([f"Count the numbers of {a} {en} and also {en2}.", f"How many numbers of {a} are both {en} and {en2}?"]).replace("both that are", "both").replace("also that are", "also")
    body = ["count = 0", f"for {x} in {a}:", f"    if {py.format(x=x)}:".replace(" or ", " or "), f"        if {py2.format(x=x)}:", "            count += 1", "return count"]
    return problem([k, k2], r.choice([f"count_{k}", f"count_{k}_{k2}", "how_many"]), [(a, "list[int]")], "int", doc, body, list_inputs(r))


@family
def count_two(r):
    a, x, _ = vars_of(r)
    (k, en, py), (k2, en2, py2) = int_pred(r), int_pred(r)
    doc = f"Return how many numbers of {a} are {en}, minus how many are {en2}.".replace("are that are", "are")
    body = ["count = 0", f"for {x} in {a}:", f"    if {py.format(x=x)}:", "        count += 1", f"    if {py2.format(x=x)}:", "        count -= 1", "return count"]
    return problem([k, k2], r.choice(["count_difference", f"{k}_minus_{k2}"]), [(a, "list[int]")], "int", doc, body, list_inputs(r))


@family
def extreme(r):
    a, x, _ = vars_of(r)
    k, en, py = int_pred(r)
    w, op = r.choice([("largest", ">"), ("smallest", "<")])
    v = r.choice(["None", "0", "-1"])
    doc = f"Return the {w} of the numbers of {a} {en}, or {v} if there is none."
    b = "best"
    body = [f"{b} = None", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        if {b} is None or {x} {op} {b}:", f"            {b} = {x}"]
    body += [f"return {b}"] if v == "None" else [f"if {b} is None:", f"    return {v}", f"return {b}"]
    return problem([k, w, v], r.choice([f"{w}_{k}", f"find_{w}"]), [(a, "list[int]")], "int", doc, body, list_inputs(r))


@family
def index_of(r):
    a, x, _ = vars_of(r)
    k, en, py = int_pred(r)
    w = r.choice(["first", "last"])
    v = r.choice(["-1", "-1", "None"])
    one = en.replace("that are ", "that is ")
    doc = f"Return the index of the {w} number of {a} {one}, or {v} if there is none."
    if w == "first":
        body = [f"for i, {x} in enumerate({a}):", f"    if {py.format(x=x)}:", "        return i", f"return {v}"]
    else:
        body = [f"index = {v}", f"for i, {x} in enumerate({a}):", f"    if {py.format(x=x)}:", "        index = i", "return index"]
    return problem([k, w, v], r.choice([f"{w}_{k}", f"index_of_{w}", f"find_{w}_{k}"]), [(a, "list[int]")], "int", doc, body, list_inputs(r))


@family
def quantify(r):
    a, x, _ = vars_of(r)
    k, en, py = int_pred(r)
    k2, en2, py2 = int_map(r)
    w = r.choice(["any", "all"])
    doc = f"Check whether {'at least one number' if w == 'any' else 'every number'} of {a}, {en2}, is one of those {en}."
    first, last = ("True", "False") if w == "any" else ("False", "True")
    neg = "" if w == "any" else "not "
    cond = py.format(x="y")
    cond = f"not ({cond})" if neg and " or " in cond else neg + cond
    body = [f"for {x} in {a}:", f"    y = {py2.format(x=x)}", f"    if {cond}:", f"        return {first}", f"return {last}"]
    return problem([k, k2, w], r.choice([f"{w}_{k}", "check", f"{w}_{k2}_{k}"]), [(a, "list[int]")], "bool", doc, body, list_inputs(r))


@family
def split_lists(r):
    a, x, _ = vars_of(r)
    k, en, py = int_pred(r)
    k2, en2, py2 = int_map(r)
    doc = f"Split {a} into a pair of lists: the numbers {en}, and the others {en2}."
    p, q = r.choice([("first", "second"), ("yes", "no"), ("left", "right")])
    body = [f"{p} = []", f"{q} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {p}.append({x})", "    else:", f"        {q}.append({py2.format(x=x)})", f"return {p}, {q}"]
    return problem([k, k2], r.choice(["split", f"split_{k}", "partition"]), [(a, "list[int]")], "tuple[list[int], list[int]]", doc, body, list_inputs(r))


@family
def running(r):
    a, x, out = vars_of(r)
    w, en, py, z = r.choice([("sum", "sums", "total + {x}", "0"), ("product", "products", "total * {x}", "1"), ("max", "maxima", "max(total, {x})", "0"), ("min", "minima", "min(total, {x})", "0")])
    k, en2, py2 = int_map(r)
    start = r.randint(2, 20) if r.random() < 0.7 else int(z)
    doc = f"Return the running {en} of the numbers of {a}, each {en2}, starting from {start}."
    body = [f"{out} = []", f"total = {start}", f"for {x} in {a}:", f"    {x} = {py2.format(x=x)}", f"    total = {py.format(x=x)}", f"    {out}.append(total)", f"return {out}"]
    return problem([w, k], r.choice([f"running_{w}", f"running_{w}_{k}"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def pairwise(r):
    a, x, out = vars_of(r)
    b = "other"
    w, en, py = r.choice([("sum", "sum", "{x} + y"), ("product", "product", "{x} * y"), ("difference", "difference", "{x} - y"), ("max", "larger", "max({x}, y)"), ("min", "smaller", "min({x}, y)"), ("gap", "absolute difference", "abs({x} - y)")])
    k, en2, py2 = int_map(r)
    doc = f"Return the {en} of each pair of numbers of {a} and {b}, {en2}."
    body = [f"{out} = []", f"for {x}, y in zip({a}, {b}):", f"    z = {py.format(x=x)}", f"    {out}.append({py2.format(x='z')})", f"return {out}"]

    def inputs(r):
        n = r.randint(1, 4)
        return ints(r, n=n), ints(r, n=n)
    return problem([w, k], r.choice([f"pairwise_{w}", f"pair_{w}_{k}"]), [(a, "list[int]"), (b, "list[int]")], "list[int]", doc, body, inputs)


@family
def pairs_count(r):
    a, x, out = vars_of(r)
    b = "other"
    w, en, py = r.choice([("less", "the first is less than the second", "{x} < y"), ("greater", "the first is greater than the second", "{x} > y"), ("equal", "both are equal", "{x} == y"), ("even", "the sum is even", "({x} + y) % 2 == 0"), ("positive", "the product is positive", "{x} * y > 0")])
    k, en2, py2 = int_map(r)
    doc = f"Return the sum of the numbers of {a}, each {en2}, over the pairs of {a} and {b} where {en}."
    body = ["total = 0", f"for {x}, y in zip({a}, {b}):", f"    if {py.format(x=x)}:", f"        total += {py2.format(x=x)}", "return total"]

    def inputs(r):
        n = r.randint(1, 5)
        return ints(r, 0, 9, n=n), ints(r, 0, 9, n=n)
    return problem([w, k], r.choice([f"sum_where_{w}", f"pairs_{w}"]), [(a, "list[int]"), (b, "list[int]")], "int", doc, body, inputs)


@family
def common(r):
    a, x, out = vars_of(r)
    b = "other"
    w, no = r.choice([("also in", ""), ("not in", "not ")])
    k, en, py = int_pred(r)
    doc = f"Return the numbers of {a} {en} that are {w} {b}."
    body = [f"{out} = []", f"for {x} in {a}:", f"    if {x} {no}in {b}:", f"        if {py.format(x=x)}:", f"            {out}.append({x})", f"return {out}"]
    return problem([w, k], r.choice(["common" if not no else "missing", f"{k}_{'in' if not no else 'not_in'}"]), [(a, "list[int]"), (b, "list[int]")], "list[int]", doc, body,
                   lambda r: (ints(r, 0, 15), ints(r, 0, 15, n=5)))


@family
def adjacent(r):
    a, _, out = vars_of(r)
    w, en, py = r.choice([("sums", "sums", "{a}[i] + {a}[i - 1]"), ("differences", "differences", "{a}[i] - {a}[i - 1]"), ("products", "products", "{a}[i] * {a}[i - 1]"), ("maxima", "maxima", "max({a}[i], {a}[i - 1])"), ("gaps", "absolute differences", "abs({a}[i] - {a}[i - 1])")])
    k, en2, py2 = int_pred(r)
    doc = f"Return the {en} of neighbours in {a}, but only those {en2}."
    body = [f"{out} = []", f"for i in range(1, len({a})):", f"    d = {py.format(a=a)}", f"    if {py2.format(x='d')}:", f"        {out}.append(d)", f"return {out}"]
    return problem([w, k], r.choice([f"adjacent_{w}", f"{k}_{w}"]), [(a, "list[int]")], "list[int]", doc, body, lambda r: (ints(r, n=r.choice([1, 4, 5, 6])),))


@family
def every_kth(r):
    a, x, out = vars_of(r)
    k = r.randint(2, 6)
    s = r.randint(0, 4)
    m, en, py = int_map(r)
    doc = f"Return every {['', '', 'second', 'third', 'fourth', 'fifth', 'sixth'][k]} number of {a}, starting at index {s}, {en}."
    body = [f"{out} = []", f"for i in range({s}, len({a}), {k}):", f"    {x} = {a}[i]", f"    {out}.append({py.format(x=x)})", f"return {out}"]
    return problem([str(k), str(s), m], r.choice(["every_kth", f"every_{k}", f"step_{m}"]), [(a, "list[int]")], "list[int]", doc, body, lambda r: (ints(r, n=r.randint(3, 8)),))


@family
def index_parity(r):
    a, x, _ = vars_of(r)
    w, c = r.choice([("even", "i % 2 == 0"), ("odd", "i % 2 == 1"), ("third", "i % 3 == 0")])
    en = f"at {w} indices" if w != "third" else "at indices divisible by 3"
    k, en2, py2 = int_pred(r)
    doc = f"Return the sum of the numbers of {a} {en2} that stand {en}."
    body = ["total = 0", f"for i, {x} in enumerate({a}):", f"    if {c}:", f"        if {py2.format(x=x)}:", f"            total += {x}", "return total"]
    return problem([w, k], r.choice([f"sum_{w}_indices", f"{w}_places"]), [(a, "list[int]")], "int", doc, body, lambda r: (ints(r, n=r.randint(1, 6)),))


@family
def sort_take(r):
    a, x, out = vars_of(r)
    k = r.randint(1, 5)
    w = r.choice(["largest", "smallest"])
    m, en, py = int_map(r)
    doc = f"Return the {k} {w} numbers of {a}, {w} first, each {en}."
    s = f"sorted({a}, reverse=True)" if w == "largest" else f"sorted({a})"
    body = [f"{out} = []", f"for {x} in {s}[:{k}]:", f"    {out}.append({py.format(x=x)})", f"return {out}"]
    return problem([w, str(k), m], r.choice([f"top_{w}", f"{w}_{k}"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def unique_list(r):
    a, x, out = vars_of(r)
    k, en, py = int_map(r)
    k2, en2, py2 = int_pred(r)
    doc = f"Return the numbers of {a} {en2}, each {en}, without repeats and in order."
    body = [f"{out} = []", f"for {x} in {a}:", f"    if {py2.format(x=x)}:", f"        y = {py.format(x=x)}", f"        if y not in {out}:", f"            {out}.append(y)", f"return {out}"]
    return problem([k, k2], r.choice(["unique", f"distinct_{k}", f"unique_{k2}"]), [(a, "list[int]")], "list[int]", doc, body, lambda r: (ints(r, -4, 12, n=6),))


@family
def take_until(r):
    a, x, out = vars_of(r)
    k, en, py = int_pred(r)
    w = r.choice(["take", "drop"])
    one = en.replace("that are ", "that is ")
    if w == "take":
        doc = f"Return the numbers of {a} that come before the first number {one}."
        body = [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", "        break", f"    {out}.append({x})", f"return {out}"]
    else:
        doc = f"Return the numbers of {a} that start at the first number {one}."
        body = [f"for i, {x} in enumerate({a}):", f"    if {py.format(x=x)}:", f"        return {a}[i:]", "return []"]
    return problem([w, k], r.choice([f"{w}_until", f"{'before' if w == 'take' else 'from'}_{k}"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def limit_sum(r):
    a, x, _ = vars_of(r)
    k = r.randint(10, 60)
    m, en, py = int_map(r)
    doc = f"Count how many numbers of {a}, each {en}, can be added up before the sum exceeds {k}."
    body = ["total = 0", "count = 0", f"for {x} in {a}:", f"    total += {py.format(x=x)}", f"    if total > {k}:", "        break", "    count += 1", "return count"]
    return problem([m, str(k // 10)], r.choice(["count_until", "fit_count", f"limit_{k}"]), [(a, "list[int]")], "int", doc, body, lambda r: (ints(r, 1, 25, n=5),))


@family
def replace_list(r):
    a, x, out = vars_of(r)
    k, en, py = int_pred(r)
    v = r.choice([0, -1, 1, 7, 10, 99, 100])
    doc = r.choice([f"Replace the numbers of {a} {en} by {v}.", f"Return {a} with the numbers {en} replaced by {v}."])
    body = [f"{out} = []", f"for {x} in {a}:", f"    if {py.format(x=x)}:", f"        {out}.append({v})", "    else:", f"        {out}.append({x})", f"return {out}"]
    return problem([k, str(v)], r.choice([f"replace_{k}", f"mask_{k}"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def rotate(r):
    a, _, out = vars_of(r)
    k = r.randint(1, 5)
    w = r.choice(["left", "right"])
    m, en, py = int_map(r)
    doc = f"Rotate {a} to the {w} by {k} places, with each number {en}."
    x = r.choice(INT_VARS)
    sl = f"{a}[k:] + {a}[:k]" if w == "left" else f"{a}[-k:] + {a}[:-k]"
    body = [f"if not {a}:", "    return []", f"k = {k} % len({a})", f"moved = {sl}", f"return [{py.format(x=x)} for {x} in moved]"]
    return problem([w, str(k), m], r.choice([f"rotate_{w}", f"rotate_{k}"]), [(a, "list[int]")], "list[int]", doc, body, list_inputs(r))


@family
def chunks(r):
    a, _, out = vars_of(r)
    k = r.randint(2, 5)
    w, en, py = r.choice([("sum", "the sum of each chunk", "sum(part)"), ("max", "the largest number of each chunk", "max(part)"), ("min", "the smallest number of each chunk", "min(part)"), ("list", "the list of chunks", "part"), ("first", "the first number of each chunk", "part[0]"), ("last", "the last number of each chunk", "part[-1]"), ("reversed", "the reversed chunks", "part[::-1]")])
    doc = f"Cut {a} into chunks of {k} numbers (the last may be shorter) and return {en}."
    body = [f"{out} = []", f"for i in range(0, len({a}), {k}):", f"    part = {a}[i:i + {k}]", f"    {out}.append({py})", f"return {out}"]
    ret = "list[list[int]]" if w in ("list", "reversed") else "list[int]"
    return problem([w, str(k)], r.choice(["chunks", f"chunk_{w}"]), [(a, "list[int]")], ret, doc, body, lambda r: (ints(r, n=r.randint(2, 7)),))


@family
def windows(r):
    a, _, out = vars_of(r)
    k = r.randint(2, 4)
    w, en, py = r.choice([("sum", "sum", "sum(part)"), ("max", "largest number", "max(part)"), ("min", "smallest number", "min(part)"), ("span", "difference between the largest and the smallest number", "max(part) - min(part)")])
    p, en2, py2 = int_pred(r)
    doc = f"For each window of {k} neighbours in {a} take the {en}, and return those {en2}."
    body = [f"{out} = []", f"for i in range(len({a}) - {k - 1}):", f"    part = {a}[i:i + {k}]", f"    value = {py}", f"    if {py2.format(x='value')}:", f"        {out}.append(value)", f"return {out}"]
    return problem([w, str(k), p], r.choice(["windows", f"window_{w}"]), [(a, "list[int]")], "list[int]", doc, body, lambda r: (ints(r, n=r.randint(3, 6)),))
