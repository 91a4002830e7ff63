// Package sandbox runs generated Python programs against their tests, so that
// they can neither harm the machine nor say themselves that they passed.
//
// What a program meets, with bubblewrap (https://github.com/containers/bubblewrap):
// namespaces of its own for processes, network (none), IPC, host name and mounts;
// a root of /usr and Python's folder, read-only, and nothing else of the machine; a
// small tmpfs for /tmp; no capabilities, and no way to gain privileges; a user of
// its own; limits of address space, processes, file sizes and CPU time; a cgroup
// that limits memory and processes of everything it starts, where this process
// may make one (versions 1 and 2); a limit of wall-clock time, after which
// the whole namespace is killed.
//
// What the tests meet: judge.py. The program runs in another process than its
// tests, which see plain values of it and nothing else.
//
// [Open] fails where bubblewrap is missing or does not work here, and says what to
// do. [OpenUnsafe] runs without it, with the limits and the judge alone.
package sandbox
