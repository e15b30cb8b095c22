/* What must hold for a chore's program to go on: tells the line that does not, and ends the program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define need(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                     \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
