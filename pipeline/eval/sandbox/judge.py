"""Runs one generated program against its tests. Started by sandbox.go, inside the sandbox.

Two processes: this one, the judge, holds the tests; a fork of it, made before it has read
them, holds the program. The judge calls the program's function through a pipe, with plain
values alone, so that nothing that the program defines or replaces is ever run by the tests,
and nothing that it prints, exits with or forges can say "passed". The verdict goes to
descriptor 3 behind a nonce that the program's process never had.

Standard input: the program; then prompt, tests, entry point and nonce; each a line with its
length in bytes, and the bytes. Arguments: uids of judge and program (0: stay), then the
program's limits: bytes of memory, processes, bytes of a file, seconds of CPU.
"""

import builtins
import marshal
import os
import resource
import sys

sys.path = [p for p in sys.path if p]
sys.set_int_max_str_digits(0)


def read(fd, n):
    parts = []
    while n:
        part = os.read(fd, min(n, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def write(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def field():
    """The next field of standard input."""
    length = b""
    while not length.endswith(b"\n"):
        length += read(0, 1)
    return read(0, int(length)).decode("utf-8", "surrogatepass")


def send(fd, value):
    data = marshal.dumps(value, 2)
    write(fd, len(data).to_bytes(8, "little") + data)


def receive(fd, most=1 << 28):
    n = int.from_bytes(read(fd, 8), "little")
    if n > most:
        raise EOFError
    return marshal.loads(read(fd, n))


def become(uid):
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


# Plain values, by the types that they are made of. A subclass becomes what it extends:
# a Counter compares equal to the dict, a named tuple to the tuple.
def plain(v, depth=0):
    if v is None or v is True or v is False or v is Ellipsis:
        return v
    if depth > 200:
        raise TypeError("values are nested too deeply")
    for kind in (int, float, complex, str, bytes):
        if isinstance(v, kind):
            return v if type(v) is kind else kind(v) if kind is not str else str.__str__(v)
    for kind in (list, tuple, set, frozenset):
        if isinstance(v, kind):
            return kind([plain(x, depth + 1) for x in kind.__iter__(v)])
    if isinstance(v, dict):
        return {plain(k, depth + 1): plain(x, depth + 1) for k, x in dict.items(v)}
    if isinstance(v, bytearray):
        return v
    import decimal
    import fractions

    if isinstance(v, decimal.Decimal) or isinstance(v, fractions.Fraction):
        return float(v)
    raise TypeError(f"a value of type {type(v).__name__} cannot be compared")


def words(e):
    try:
        return str(e)[:300]
    except BaseException:
        return ""


def program(code, entry, requests, replies):
    """The other process: defines the program and answers calls until the judge ends."""
    try:
        space = {"__name__": "candidate"}
        exec(compile(code, "candidate", "exec"), space)
        send(replies, ("ready",))
    except BaseException as e:
        send(replies, ("raise", [k.__name__ for k in type(e).__mro__], words(e)))
        return
    while True:
        args, kwargs = receive(requests)
        try:
            result = plain(space[entry](*args, **kwargs))
            answer = ("return", result, plain(args))
        except BaseException as e:
            answer = ("raise", [k.__name__ for k in type(e).__mro__], words(e))
        send(replies, answer)


class Gone(BaseException):
    """The program's process ended, or spoke nonsense."""


class Raised:
    """What the program raised last."""

    name = None
    text = ""


def exception(names, text):
    """The nearest built-in exception, so that tests which expect one see it."""
    Raised.name, Raised.text = str(names[0]), str(text)
    for name in names:
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(str(text))
            except TypeError:  # UnicodeDecodeError and the like want more
                continue
    return Exception(f"{names[0]}: {text}")


def judge(requests, replies):
    prompt, tests, entry, nonce = field(), field(), field(), field()
    gone = []

    def answer():
        try:
            a = receive(replies)
            if type(a) is tuple and a and (a[0] == "ready" or a[0] in ("raise", "return") and len(a) == 3):
                return a
        except Exception:
            pass
        gone.append(True)
        raise Gone

    def candidate(*args, **kwargs):
        if gone:
            raise Gone
        try:
            send(requests, (args, kwargs))
        except (OSError, EOFError):
            gone.append(True)
            raise Gone from None
        a = answer()
        Raised.name = None
        if a[0] != "return":
            raise exception(a[1], a[2]) if a[0] == "raise" else Gone
        for old, new in zip(args, tuple(a[2])):  # what the program did to its arguments
            if type(old) is not type(new):
                continue
            if type(old) is list:
                old[:] = new
            elif type(old) in (dict, set):
                old.clear()
                old.update(new)
        return a[1]

    def run():
        started = answer()
        if started[0] != "ready":
            return "error", f"{started[1][0]}: {started[2]}", started[1][0]
        space = {"__name__": "check"}
        for code in (prompt, prompt + "\n    pass\n"):  # helpers that the tests may use
            try:
                exec(compile(code, "prompt", "exec"), space)
                break
            except SyntaxError:
                continue
            except Exception:
                break
        space[entry] = candidate
        try:
            exec(compile(tests, "tests", "exec"), space)
            if callable(space.get("check")):
                space["check"](candidate)
        except AssertionError as e:
            if Raised.name is None:
                return "failed", words(e), ""
            return "error", f"{Raised.name}: {Raised.text}", Raised.name
        except Exception as e:
            if Raised.name is None:
                return "error", f"in the tests: {type(e).__name__}: {words(e)}", ""
            return "error", f"{Raised.name}: {Raised.text}", Raised.name
        return "passed", "", ""

    try:
        verdict, detail, name = run()
    except Gone:
        verdict = "crashed"
    if gone:
        verdict, detail, name = "crashed", "the program's process ended", ""
    if name == "MemoryError":
        verdict = "memory"
    write(3, f"{nonce} {verdict} {detail}".encode("utf-8", "replace")[:2048])


def hide():
    """Where both processes have one uid, the other may not look into this one (PR_SET_DUMPABLE)."""
    import ctypes

    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def main():
    judge_uid, program_uid, memory, processes, disk, cpu = map(int, sys.argv[1:7])
    code, entry = field(), field()
    to_program, requests = os.pipe()
    replies, from_program = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    if os.fork() == 0:
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for fd in range(3, 64):
            if fd not in (to_program, from_program):
                try:
                    os.close(fd)
                except OSError:
                    pass
        try:
            become(program_uid)
            limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_FSIZE, disk), (resource.RLIMIT_CPU, cpu)]
            limits += [(resource.RLIMIT_AS, memory), (resource.RLIMIT_NPROC, processes)]
            for what, most in limits:
                hard = resource.getrlimit(what)[1]
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(what, (most, most))
            program(code, entry, to_program, from_program)
        finally:
            os._exit(0)
    os.close(to_program)
    os.close(from_program)
    become(judge_uid)
    if not judge_uid:
        hide()
    judge(requests, replies)
    os._exit(0)


main()
