/*
 * Expectations: prints the line of each that does not hold, and counts them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int failures;

#define EXPECT(what)                                                                       \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            failures++;                                                                    \
            printf("line %d: not so: %s (errno %d, %s)\n", __LINE__, #what, errno, strerror(errno)); \
        }                                                                                  \
    } while (0)
