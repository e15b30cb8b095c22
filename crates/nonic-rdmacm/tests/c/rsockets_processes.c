/*
 * rsockets of a process that forks, and of one whose peer is killed.
 *
 * Prints the line of each expectation that does not hold, and fails then.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

static struct sockaddr_in address;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int connect_to(int port)
{
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    address.sin_port = htons(port);
    EXPECT(fd >= 0);
    EXPECT(rconnect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* A child whose parent has sockets: it makes its own, and leaves the parent's alone. */
static int child_talks(int port, int inherited)
{
    char buffer[8];
    EXPECT(rsend(inherited, "x", 1, 0) == -1 && errno == EBADF);
    EXPECT(rclose(inherited) == 0);
    int fd = connect_to(port);
    EXPECT(rsend(fd, "child", 5, 0) == 5);
    EXPECT(rrecv(fd, buffer, 8, 0) == 6 && !memcmp(buffer, "parent", 6));
    EXPECT(rclose(fd) == 0);
    return failures != 0;
}

int main(int argc, char **argv)
{
    int port = argc > 1 ? atoi(argv[1]) : 7471, status;
    char buffer[8];

    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    EXPECT(rbind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    EXPECT(rlisten(listener, 8) == 0);
    int own = connect_to(port);
    int other = raccept(listener, NULL, NULL);

    pid_t child = fork();
    if (!child)
        _exit(child_talks(port, own));
    int served = raccept(listener, NULL, NULL);
    EXPECT(rrecv(served, buffer, 8, 0) == 5 && !memcmp(buffer, "child", 5));
    EXPECT(rsend(served, "parent", 6, 0) == 6);
    EXPECT(rrecv(served, buffer, 8, 0) == 0);
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(rclose(served) == 0);
    /* The parent's own connection has not noticed. */
    EXPECT(rsend(own, "still", 5, 0) == 5);
    EXPECT(rrecv(other, buffer, 8, 0) == 5);

    /* A child that is killed says nothing; who waits for it learns all the same. */
    child = fork();
    if (!child) {
        int fd = connect_to(port);
        rsend(fd, "here", 4, 0);
        for (;;)
            pause();
    }
    served = raccept(listener, NULL, NULL);
    EXPECT(rrecv(served, buffer, 8, 0) == 4);
    EXPECT(kill(child, SIGKILL) == 0);
    double start = now();
    ssize_t got = rrecv(served, buffer, 8, 0);
    EXPECT(got == 0 || (got == -1 && errno == ECONNRESET));
    printf("noticed after %.3f s\n", now() - start);
    EXPECT(waitpid(child, &status, 0) == child);
    struct pollfd polled = { .fd = served, .events = POLLIN };
    EXPECT(rpoll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP));
    EXPECT(rsend(served, "x", 1, 0) == -1 && errno == ECONNRESET);
    EXPECT(rclose(served) == 0 && rclose(own) == 0 && rclose(other) == 0 && rclose(listener) == 0);
    return failures != 0;
}
