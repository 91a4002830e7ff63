#ifndef DM_SIGBUS_H
#define DM_SIGBUS_H

// Installs the handler. Returns 0, or an errno.
int dm_sigbus_explain(void);

// Reads one byte, in C: for the test.
char dm_sigbus_touch(const char *at);

#endif
