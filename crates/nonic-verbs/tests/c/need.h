/*
 * What must hold for a test to go on: prints the line that does not, and ends the program.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition) \
	do { \
		if (!(condition)) { \
			printf("line %d: %s (errno: %s)\n", __LINE__, #condition, strerror(errno)); \
			exit(1); \
		} \
	} while (0)
