/*
 * What programs may expect of rsockets beyond what rdma-core's own programs use: one process, both ends.
 *
 * Prints the line of each expectation that does not hold, and fails then.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

static union {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address;
static socklen_t address_len;
static int family;
static uint16_t next_port;

static void set_port(uint16_t port)
{
    if (family == AF_INET)
        address.v4.sin_port = htons(port);
    else
        address.v6.sin6_port = htons(port);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int listener(void)
{
    int fd = rsocket(family, SOCK_STREAM, 0), on = 1;
    EXPECT(fd >= 0);
    EXPECT(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    set_port(next_port++);
    EXPECT(rbind(fd, &address.sa, address_len) == 0);
    EXPECT(rlisten(fd, 10) == 0);
    return fd;
}

/* Connects before anybody accepts, as with TCP. */
static void connected(int ends[2])
{
    int fd = listener();
    ends[0] = rsocket(family, SOCK_STREAM, 0);
    EXPECT(rconnect(ends[0], &address.sa, address_len) == 0);
    ends[1] = raccept(fd, NULL, NULL);
    EXPECT(ends[1] >= 0);
    EXPECT(rclose(fd) == 0);
}

static void closed(int ends[2])
{
    EXPECT(rclose(ends[0]) == 0);
    EXPECT(rclose(ends[1]) == 0);
}

static void reading(void)
{
    int ends[2];
    char buffer[64] = "";

    connected(ends);
    EXPECT(rrecv(ends[1], buffer, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    EXPECT(rsend(ends[0], "hello ", 6, 0) == 6);
    EXPECT(rrecv(ends[1], buffer, 3, MSG_PEEK) == 3 && !memcmp(buffer, "hel", 3));
    EXPECT(rrecv(ends[1], buffer, 5, MSG_PEEK) == 5 && !memcmp(buffer, "hello", 5));
    EXPECT(rrecv(ends[1], buffer, 2, 0) == 2 && !memcmp(buffer, "he", 2));
    EXPECT(rsend(ends[0], "world", 5, MSG_NOSIGNAL) == 5);
    EXPECT(rrecv(ends[1], buffer, 9, MSG_WAITALL) == 9 && !memcmp(buffer, "llo world", 9));
    EXPECT(rread(ends[1], buffer, 0) == 0);

    struct iovec out[3] = { { "ab", 2 }, { "", 0 }, { "cdef", 4 } };
    EXPECT(rwritev(ends[1], out, 3) == 6);
    char first[1], second[9];
    struct iovec in[2] = { { first, 1 }, { second, 9 } };
    EXPECT(rreadv(ends[0], in, 2) == 6 && first[0] == 'a' && !memcmp(second, "bcdef", 5));
    struct msghdr message = { .msg_iov = out, .msg_iovlen = 3 };
    EXPECT(rsendmsg(ends[0], &message, 0) == 6);
    message.msg_iov = in;
    message.msg_iovlen = 2;
    EXPECT(rrecvmsg(ends[1], &message, 0) == 6 && !memcmp(second, "bcdef", 5));
    EXPECT(rsendto(ends[0], "x", 1, 0, &address.sa, address_len) == -1 && errno == EISCONN);
    closed(ends);
}

static void names(void)
{
    int fd = listener(), client, server;
    struct sockaddr_in6 ours, theirs;
    socklen_t len = sizeof ours;

    client = rsocket(family, SOCK_STREAM, 0);
    EXPECT(rgetpeername(client, (struct sockaddr *)&ours, &len) == -1 && errno == ENOTCONN);
    EXPECT(rconnect(client, &address.sa, address_len) == 0);
    len = sizeof theirs;
    server = raccept(fd, (struct sockaddr *)&theirs, &len);
    EXPECT(server >= 0 && len == address_len);
    len = sizeof ours;
    EXPECT(rgetsockname(client, (struct sockaddr *)&ours, &len) == 0 && len == address_len);
    EXPECT(!memcmp(&ours, &theirs, address_len));
    len = sizeof ours;
    EXPECT(rgetpeername(client, (struct sockaddr *)&ours, &len) == 0);
    EXPECT(((struct sockaddr_in *)&ours)->sin_port == address.v4.sin_port);
    EXPECT(rclose(client) == 0 && rclose(server) == 0 && rclose(fd) == 0);
}

static void halves(void)
{
    int ends[2];
    char buffer[16];
    struct pollfd polled;

    connected(ends);
    EXPECT(rsend(ends[0], "last", 4, 0) == 4);
    EXPECT(rshutdown(ends[0], SHUT_WR) == 0);
    EXPECT(rsend(ends[0], "more", 4, 0) == -1 && errno == EPIPE);
    EXPECT(rrecv(ends[1], buffer, 16, 0) == 4);
    EXPECT(rrecv(ends[1], buffer, 16, 0) == 0);
    EXPECT(rsend(ends[1], "answer", 6, 0) == 6);
    EXPECT(rrecv(ends[0], buffer, 16, 0) == 6);
    EXPECT(rclose(ends[1]) == 0);
    EXPECT(rrecv(ends[0], buffer, 16, 0) == 0);
    polled = (struct pollfd){ .fd = ends[0], .events = POLLIN };
    EXPECT(rpoll(&polled, 1, 1000) == 1 && polled.revents == (POLLIN | POLLHUP));
    EXPECT(rclose(ends[0]) == 0);
    EXPECT(rclose(ends[0]) == -1 && errno == EBADF);
}

static void left_behind(void)
{
    int ends[2];
    char buffer[16];
    struct pollfd polled;

    connected(ends);
    EXPECT(rsend(ends[0], "bye", 3, 0) == 3);
    EXPECT(rclose(ends[0]) == 0);
    /* The end is no news before everything was read. */
    polled = (struct pollfd){ .fd = ends[1], .events = POLLIN };
    EXPECT(rpoll(&polled, 1, 1000) == 1 && polled.revents == POLLIN);
    EXPECT(rrecv(ends[1], buffer, 16, 0) == 3);
    EXPECT(rrecv(ends[1], buffer, 16, 0) == 0);
    EXPECT(rsend(ends[1], "x", 1, 0) == -1 && errno == ECONNRESET);
    EXPECT(rclose(ends[1]) == 0);
}

static void refused(void)
{
    int fd = rsocket(family, SOCK_STREAM, 0), error = 0;
    struct pollfd polled = { .fd = fd, .events = POLLOUT };
    socklen_t len = sizeof error;

    set_port(next_port++);
    EXPECT(rconnect(fd, &address.sa, address_len) == -1 && errno == ECONNREFUSED);
    EXPECT(rsend(fd, "x", 1, 0) == -1 && errno == ENOTCONN);
    EXPECT(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    EXPECT(rfcntl(fd, F_GETFL) == O_NONBLOCK);
    EXPECT(rconnect(fd, &address.sa, address_len) == -1 && errno == EINPROGRESS);
    EXPECT(rpoll(&polled, 1, 5000) == 1 && (polled.revents & POLLERR));
    EXPECT(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    EXPECT(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    EXPECT(rclose(fd) == 0);

    int first = listener();
    int second = rsocket(family, SOCK_STREAM, 0);
    EXPECT(rbind(second, &address.sa, address_len) == -1 || rlisten(second, 1) == -1);
    EXPECT(errno == EADDRINUSE);
    EXPECT(rclose(first) == 0 && rclose(second) == 0);
    EXPECT(rsend(-1, "x", 1, 0) == -1 && errno == EBADF);
    EXPECT(rsocket(AF_UNIX, SOCK_STREAM, 0) == -1 && errno == EAFNOSUPPORT);
}

static void nonblocking(void)
{
    int fd = listener(), client = rsocket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), server;
    struct pollfd polled[2] = { { .fd = fd, .events = POLLIN }, { .fd = client, .events = POLLOUT } };
    static char buffer[1 << 20];
    int pipe_ends[2];
    long sent = 0, received = 0, got;

    EXPECT(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    EXPECT(raccept(fd, NULL, NULL) == -1 && errno == EAGAIN);
    EXPECT(rpoll(polled, 1, 10) == 0);
    EXPECT(rconnect(client, &address.sa, address_len) == -1 && errno == EINPROGRESS);
    EXPECT(rpoll(&polled[1], 1, 5000) == 1 && polled[1].revents == POLLOUT);
    EXPECT(rpoll(polled, 1, 5000) == 1 && polled[0].revents == POLLIN);
    server = raccept(fd, NULL, NULL);
    EXPECT(server >= 0);
    EXPECT(rfcntl(server, F_SETFL, O_NONBLOCK) == 0);

    /* Until there is no more room, also when what was under way has arrived; then until there is nothing more. */
    polled[0] = (struct pollfd){ .fd = client, .events = POLLOUT };
    do {
        while ((got = rsend(client, buffer, sizeof buffer, 0)) > 0)
            sent += got;
        EXPECT(errno == EAGAIN && sent > 0);
    } while (rpoll(polled, 1, 200) == 1);
    EXPECT(rpoll(polled, 1, 0) == 0);
    while ((got = rrecv(server, buffer, sizeof buffer, 0)) > 0)
        received += got;
    EXPECT(errno == EAGAIN && received > 0 && received <= sent);
    EXPECT(rpoll(polled, 1, 5000) == 1 && polled[0].revents == POLLOUT);

    /* Ordinary descriptors among them. */
    EXPECT(pipe(pipe_ends) == 0);
    polled[0] = (struct pollfd){ .fd = pipe_ends[0], .events = POLLIN };
    polled[1] = (struct pollfd){ .fd = client, .events = POLLIN };
    EXPECT(rpoll(polled, 2, 0) == 0);
    EXPECT(write(pipe_ends[1], "x", 1) == 1);
    EXPECT(rpoll(polled, 2, 1000) == 1 && polled[0].revents == POLLIN && !polled[1].revents);
    EXPECT(rsend(server, "x", 1, 0) == 1);
    EXPECT(read(pipe_ends[0], buffer, 1) == 1);
    EXPECT(rpoll(polled, 2, 1000) == 1 && !polled[0].revents && polled[1].revents == POLLIN);

    fd_set to_read, to_write;
    struct timeval timeout = { .tv_sec = 1 };
    FD_ZERO(&to_read);
    FD_ZERO(&to_write);
    FD_SET(client, &to_read);
    FD_SET(pipe_ends[0], &to_read);
    FD_SET(client, &to_write);
    EXPECT(rselect(100, &to_read, &to_write, NULL, &timeout) == 2);
    EXPECT(FD_ISSET(client, &to_read) && FD_ISSET(client, &to_write) && !FD_ISSET(pipe_ends[0], &to_read));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    EXPECT(rclose(client) == 0 && rclose(server) == 0 && rclose(fd) == 0);
}

/* More come at once than the listener has room for. */
static void many(void)
{
    enum { CLIENTS = 20 };
    int fd = listener(), clients[CLIENTS], server;
    char byte;
    struct pollfd polled;

    EXPECT(rlisten(fd, 1) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = rsocket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        EXPECT(rconnect(clients[i], &address.sa, address_len) == -1 && errno == EINPROGRESS);
    }
    for (int i = 0; i < CLIENTS - 2; i++) {
        server = raccept(fd, NULL, NULL);
        EXPECT(rsend(server, "x", 1, 0) == 1);
        EXPECT(rclose(server) == 0);
    }
    /* Nobody takes the last two: one is established, the other waits. */
    EXPECT(rclose(fd) == 0);
    int served = 0;
    for (int i = 0; i < CLIENTS; i++) {
        polled = (struct pollfd){ .fd = clients[i], .events = POLLIN };
        EXPECT(rpoll(&polled, 1, 10000) == 1);
        served += rrecv(clients[i], &byte, 1, 0) == 1;
        EXPECT(rclose(clients[i]) == 0);
    }
    EXPECT(served == CLIENTS - 2);
}

/* Connections come and go faster than their numbers are forgotten. */
static void churn(void)
{
    int fd = listener();
    char byte;

    for (int i = 0; i < 500; i++) {
        int client = rsocket(family, SOCK_STREAM, 0), server;
        EXPECT(rconnect(client, &address.sa, address_len) == 0);
        if (failures)
            break;
        server = raccept(fd, NULL, NULL);
        EXPECT(rsend(client, "x", 1, 0) == 1 && rrecv(server, &byte, 1, 0) == 1);
        EXPECT(rclose(i % 2 ? client : server) == 0 && rclose(i % 2 ? server : client) == 0);
    }
    EXPECT(rclose(fd) == 0);
}

static void timeouts(void)
{
    int ends[2], value = 1;
    char byte;
    struct timeval timeout = { .tv_usec = 50000 };
    socklen_t len = sizeof value;
    double start;

    connected(ends);
    EXPECT(rsetsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    start = now();
    EXPECT(rrecv(ends[0], &byte, 1, 0) == -1 && errno == EAGAIN);
    EXPECT(now() - start >= 0.05);
    EXPECT(rsetsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value) == 0);
    EXPECT(rsetsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
    value = 0;
    EXPECT(rgetsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, &value, &len) == 0 && value == 1);
    EXPECT(rsetsockopt(ends[0], SOL_RDMA, RDMA_SQSIZE, &value, sizeof value) == -1 && errno == EINVAL);
    EXPECT(rsetsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &value, sizeof value) == -1 && errno == ENOTSUP);
    closed(ends);
}

/* Two threads at each end, one of which writes while the other reads. */
#define STREAM (8 << 20)

struct job {
    int fd;
    unsigned seed;
    long wrong;
};

static void *writes(void *argument)
{
    struct job *job = argument;
    static __thread unsigned char buffer[100000];
    unsigned char value = job->seed;
    for (long done = 0; done < STREAM;) {
        long length = 1 + (done * 7919) % (long)sizeof buffer;
        if (length > STREAM - done)
            length = STREAM - done;
        for (long i = 0; i < length; i++)
            buffer[i] = value++;
        if (rsend(job->fd, buffer, length, 0) != length) {
            job->wrong++;
            break;
        }
        done += length;
    }
    return NULL;
}

static void *reads(void *argument)
{
    struct job *job = argument;
    static __thread unsigned char buffer[70000];
    unsigned char value = job->seed;
    for (long done = 0; done < STREAM;) {
        long length = rrecv(job->fd, buffer, sizeof buffer, 0);
        if (length <= 0) {
            job->wrong++;
            break;
        }
        for (long i = 0; i < length; i++)
            job->wrong += buffer[i] != value++;
        done += length;
    }
    return NULL;
}

static void threads(void)
{
    int ends[2];
    pthread_t ids[4];
    connected(ends);
    struct job jobs[4] = { { ends[0], 1, 0 }, { ends[1], 1, 0 }, { ends[1], 2, 0 }, { ends[0], 2, 0 } };
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, i % 2 ? reads : writes, &jobs[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(ids[i], NULL);
        EXPECT(jobs[i].wrong == 0);
    }
    closed(ends);
}

static void *blocked(void *argument)
{
    char byte;
    return (void *)(intptr_t)rrecv(*(int *)argument, &byte, 1, 0);
}

static void *polls(void *argument)
{
    struct pollfd polled = { .fd = *(int *)argument, .events = POLLIN };
    return (void *)(intptr_t)(rpoll(&polled, 1, 10000) == 1 ? polled.revents : -1);
}

/* Whoever waits is woken by what another thread does. */
static void woken(void)
{
    int ends[2];
    pthread_t reader, poller;
    void *result;

    connected(ends);
    pthread_create(&reader, NULL, blocked, &ends[0]);
    pthread_create(&poller, NULL, polls, &ends[0]);
    usleep(20000);
    EXPECT(rshutdown(ends[0], SHUT_RDWR) == 0);
    pthread_join(reader, &result);
    EXPECT((intptr_t)result == 0);
    pthread_join(poller, &result);
    EXPECT(((intptr_t)result & POLLIN) != 0);
    closed(ends);
}

/* What the devices speak is for the user to choose. */
static int over_iwarp(void)
{
    const char *wire = getenv("NONIC_WIRE");
    return wire && !strcmp(wire, "iwarp");
}

/* A socket for IPv6 that is bound to no address serves IPv4 too, whose addresses it has mapped. */
static void families(void)
{
    struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(next_port) }, from;
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(next_port) };
    struct timeval timeout = { .tv_sec = 2 };
    socklen_t len = sizeof from;
    char buffer[8];

    next_port++;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = rsocket(AF_INET6, SOCK_STREAM, 0), client = rsocket(AF_INET, SOCK_STREAM, 0);
    EXPECT(rbind(fd, (struct sockaddr *)&any, sizeof any) == 0 && rlisten(fd, 1) == 0);
    EXPECT(rconnect(client, (struct sockaddr *)&v4, sizeof v4) == 0);
    int server = raccept(fd, (struct sockaddr *)&from, &len);
    EXPECT(len == sizeof from && from.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
    EXPECT(rclose(client) == 0 && rclose(server) == 0 && rclose(fd) == 0);
    if (over_iwarp())
        return;

    server = rsocket(AF_INET6, SOCK_DGRAM, 0);
    client = rsocket(AF_INET, SOCK_DGRAM, 0);
    EXPECT(rsetsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    EXPECT(rsetsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    EXPECT(rbind(server, (struct sockaddr *)&any, sizeof any) == 0);
    for (int round = 0; round < 5; round++) {
        EXPECT(rsendto(client, "abc", 3, 0, (struct sockaddr *)&v4, sizeof v4) == 3);
        len = sizeof from;
        EXPECT(rrecvfrom(server, buffer, 8, 0, (struct sockaddr *)&from, &len) == 3);
        EXPECT(from.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
        EXPECT(rsendto(server, "de", 2, 0, (struct sockaddr *)&from, len) == 2);
        len = sizeof from;
        EXPECT(rrecvfrom(client, buffer, 8, 0, (struct sockaddr *)&from, &len) == 2);
        EXPECT(from.sin6_family == AF_INET && len == sizeof v4);
    }
    EXPECT(rclose(server) == 0 && rclose(client) == 0);
}

/* Over iWARP there are no datagrams: whoever sends one is told. */
static void no_datagrams(void)
{
    int fd = rsocket(family, SOCK_DGRAM, 0);
    set_port(next_port++);
    EXPECT(rsendto(fd, "x", 1, 0, &address.sa, address_len) == -1 && errno == EOPNOTSUPP);
    EXPECT(rconnect(fd, &address.sa, address_len) == -1 && errno == EOPNOTSUPP);
    EXPECT(rclose(fd) == 0);
}

static void datagrams(void)
{
    if (over_iwarp()) {
        no_datagrams();
        return;
    }
    int server = rsocket(family, SOCK_DGRAM, 0), client = rsocket(family, SOCK_DGRAM, 0);
    struct sockaddr_in6 from, ours;
    struct timeval timeout = { .tv_sec = 2 };
    socklen_t len;
    static char sent[2048], buffer[2048];

    set_port(next_port++);
    EXPECT(server >= 0 && client >= 0);
    EXPECT(rbind(server, &address.sa, address_len) == 0);
    EXPECT(rsetsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    EXPECT(rsetsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    EXPECT(rrecv(server, buffer, sizeof buffer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    EXPECT(rsend(client, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
    EXPECT(rsendto(client, sent, 2048, 0, &address.sa, address_len) == -1 && errno == EMSGSIZE);
    /* By UDP at first, by RDMA later: the program cannot tell. */
    for (int round = 0; round < 100; round++) {
        int length = 1 + round * 20;
        memset(sent, round, sizeof sent);
        EXPECT(rsendto(client, sent, length, 0, &address.sa, address_len) == length);
        len = sizeof from;
        EXPECT(rrecvfrom(server, buffer, 10, MSG_PEEK, NULL, NULL) == (length < 10 ? length : 10));
        EXPECT(rrecvfrom(server, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len) == length);
        EXPECT(!memcmp(buffer, sent, length));
        len = sizeof ours;
        EXPECT(rgetsockname(client, (struct sockaddr *)&ours, &len) == 0);
        EXPECT(((struct sockaddr_in *)&ours)->sin_port == ((struct sockaddr_in *)&from)->sin_port);
        EXPECT(rsendto(server, "answer", 6, 0, (struct sockaddr *)&from, address_len) == 6);
        EXPECT(rrecv(client, buffer, sizeof buffer, 0) == 6 && !memcmp(buffer, "answer", 6));
    }
    EXPECT(rconnect(client, &address.sa, address_len) == 0);
    EXPECT(rsend(client, "end", 3, 0) == 3);
    EXPECT(rrecv(server, buffer, sizeof buffer, 0) == 3);
    EXPECT(rclose(server) == 0 && rclose(client) == 0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    family = strchr(argv[1], ':') ? AF_INET6 : AF_INET;
    address.sa.sa_family = family;
    address_len = family == AF_INET ? sizeof address.v4 : sizeof address.v6;
    inet_pton(family, argv[1],
              family == AF_INET ? (void *)&address.v4.sin_addr : (void *)&address.v6.sin6_addr);
    next_port = atoi(argv[2]);
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        { "reading", reading },
        { "names", names },
        { "halves", halves },
        { "left behind", left_behind },
        { "refused", refused },
        { "nonblocking", nonblocking },
        { "many", many },
        { "churn", churn },
        { "timeouts", timeouts },
        { "threads", threads },
        { "woken", woken },
        { "datagrams", datagrams },
        { "families", families },
    };
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        double start = now();
        parts[i].run();
        printf("%s: %.3f s\n", parts[i].name, now() - start);
        fflush(stdout);
    }
    return failures != 0;
}
