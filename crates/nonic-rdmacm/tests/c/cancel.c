/*
 * Threads that are cancelled (pthread_cancel) where they wait for events of the connection manager, or in calls of
 * rsockets. The first must end there; none may take anything with it.
 *
 * usage: cancel ADDRESS PORT COUNT
 *
 * Prints the line of each expectation that does not hold, and fails then.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

static struct sockaddr_in address;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static int ends[2];

/* Events that come meanwhile are taken whole or not at all. */
static int events;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void take(void)
{
    struct rdma_cm_event *event;
    int state;
    EXPECT(rdma_get_cm_event(channel, &event) == 0);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    EXPECT(event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT(rdma_ack_cm_event(event) == 0);
    pthread_mutex_lock(&counting);
    events++;
    pthread_mutex_unlock(&counting);
    pthread_setcancelstate(state, NULL);
}

static void *waits_for_events(void *argument)
{
    for (;;)
        take();
    return argument;
}

static void *waits_for_requests(void *argument)
{
    struct rdma_cm_id *request;
    while (rdma_get_request(listener, &request) == 0)
        rdma_destroy_id(request);
    EXPECT(!"it waits for ever");
    return argument;
}

/* Waits a little, gets something, and may end between the calls. */
static void *receives(void *argument)
{
    char byte;
    for (;;) {
        EXPECT(rrecv(ends[1], &byte, 1, 0) == 1);
        pthread_testcancel();
    }
    return argument;
}

static void pause_ns(long ns)
{
    struct timespec moment = {.tv_nsec = ns};
    nanosleep(&moment, NULL);
}

static void cancel_one(unsigned i)
{
    static void *(*const kinds[])(void *) = {waits_for_events, waits_for_requests, receives};
    unsigned kind = i % 3;
    pthread_t thread;
    void *result;
    EXPECT(pthread_create(&thread, NULL, kinds[kind], NULL) == 0);
    pause_ns(i * 7919 % 150000);
    EXPECT(pthread_cancel(thread) == 0);
    if (kind == 2)
        EXPECT(rsend(ends[0], "x", 1, 0) == 1);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    if (kind == 2) {
        /* It had taken the byte, or it is still there. */
        char byte;
        ssize_t got = rrecv(ends[1], &byte, 1, MSG_DONTWAIT);
        EXPECT(got == 1 || (got == -1 && errno == EAGAIN));
    }
}

/* Resolving an address makes an event, for whoever waits. */
static void make_event(void)
{
    struct rdma_cm_id *id;
    EXPECT(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, waits_for_events, NULL) == 0);
    EXPECT(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0);
    EXPECT(pthread_cancel(thread) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    pthread_mutex_lock(&counting);
    int taken = events;
    pthread_mutex_unlock(&counting);
    if (!taken)
        take();
    EXPECT(events == 1);
    events = 0;
    EXPECT(rdma_destroy_id(id) == 0);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    unsigned count = (unsigned)atoi(argv[3]);
    alarm(50 + count / 50);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    inet_pton(AF_INET, argv[1], &address.sin_addr);

    channel = rdma_create_event_channel();
    EXPECT(channel != NULL);
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *found;
    char port[16];
    snprintf(port, sizeof port, "%d", atoi(argv[2]) + 1);
    EXPECT(rdma_getaddrinfo(argv[1], port, &hints, &found) == 0);
    EXPECT(rdma_create_ep(&listener, found, NULL, NULL) == 0);
    EXPECT(rdma_listen(listener, 1) == 0);
    rdma_freeaddrinfo(found);

    int waiting = rsocket(AF_INET, SOCK_STREAM, 0);
    EXPECT(rbind(waiting, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(waiting, 1) == 0);
    ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
    EXPECT(rconnect(ends[0], (struct sockaddr *)&address, sizeof address) == 0);
    ends[1] = raccept(waiting, NULL, NULL);
    EXPECT(ends[1] >= 0);

    for (unsigned i = 0; i < count && !failures; i++) {
        cancel_one(i);
        if (i % 10 == 0)
            make_event();
    }
    char byte = 0;
    EXPECT(rsend(ends[0], "y", 1, 0) == 1);
    /* A byte may have come too late for the thread it was meant for. */
    while (byte != 'y' && !failures)
        EXPECT(rrecv(ends[1], &byte, 1, 0) == 1);
    EXPECT(rclose(ends[0]) == 0 && rclose(ends[1]) == 0 && rclose(waiting) == 0);
    rdma_destroy_ep(listener);
    rdma_destroy_event_channel(channel);
    return failures != 0;
}
