//go:build linux

#define _GNU_SOURCE
#include "sigbus.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

// Everything here runs in a signal handler: no locks, no allocation, and only
// functions that signal-safety(7) lists.

static struct sigaction before;  // the Go runtime's

static void say(const char *text, size_t n) {
  while (n > 0) {
    ssize_t written = write(STDERR_FILENO, text, n);
    if (written <= 0) return;
    text += written;
    n -= (size_t)written;
  }
}

// hex reads a hexadecimal number and moves *at behind it.
static uintptr_t hex(const char **at) {
  uintptr_t n = 0;
  for (;; ++*at) {
    char c = **at;
    if (c >= '0' && c <= '9') n = n << 4 | (uintptr_t)(c - '0');
    else if (c >= 'a' && c <= 'f') n = n << 4 | (uintptr_t)(c - 'a' + 10);
    else return n;
  }
}

// covers returns the path in a line of /proc/self/maps, without its end, if the
// line's mapping is of a file and holds the address; else NULL.
static const char *covers(const char *line, uintptr_t address) {
  const char *at = line;
  uintptr_t from = hex(&at);
  if (*at++ != '-') return NULL;
  if (address < from || address >= hex(&at)) return NULL;
  return strchr(at, '/');
}

static char lines[8192];

// mapped_file finds the file that is mapped at an address, or NULL.
static const char *mapped_file(uintptr_t address) {
  int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return NULL;
  size_t have = 0;
  const char *found = NULL;
  while (found == NULL) {
    ssize_t n = read(maps, lines + have, sizeof lines - 1 - have);
    if (n <= 0) break;
    have += (size_t)n;
    lines[have] = 0;
    char *line = lines, *end;
    while (found == NULL && (end = strchr(line, '\n')) != NULL) {
      *end = 0;
      found = covers(line, address);
      line = end + 1;
    }
    have -= (size_t)(line - lines);
    if (have == sizeof lines - 1) break;  // no line is that long
    if (found == NULL) memmove(lines, line, have);
  }
  close(maps);
  return found;
}

static void explain(int number, siginfo_t *info, void *context) {
  const char *file = NULL;
  if (info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR) file = mapped_file((uintptr_t)info->si_addr);
  if (file != NULL) {
    static const char head[] = "error: a file was cut short or written over while it was in use: ";
    static const char tail[] = ": put another model into a folder of its own, and start again; what is committed is kept\n";
    say(head, sizeof head - 1);
    say(file, strlen(file));
    say(tail, sizeof tail - 1);
    _exit(1);
  }
  if (before.sa_flags & SA_SIGINFO && before.sa_sigaction != NULL) {
    before.sa_sigaction(number, info, context);
    return;
  }
  signal(number, SIG_DFL);  // the instruction fails again, and ends the process
}

int dm_sigbus_explain(void) {
  struct sigaction now;
  if (sigaction(SIGBUS, NULL, &before) != 0) return errno;
  memset(&now, 0, sizeof now);
  now.sa_sigaction = explain;
  now.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;  // as the Go runtime asks of handlers
  sigfillset(&now.sa_mask);
  return sigaction(SIGBUS, &now, NULL) == 0 ? 0 : errno;
}

char dm_sigbus_touch(const char *at) { return *(volatile const char *)at; }
