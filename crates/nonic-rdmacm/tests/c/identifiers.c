/*
 * What programs may expect of identifiers beyond what rdma-core's own programs use: one process, both ends.
 *
 * usage: identifiers ADDRESS PORT
 *
 * Prints the line of each expectation that does not hold, and fails then.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

#define FAILS_WITH(code, call)                                                             \
    do {                                                                                   \
        errno = 0;                                                                         \
        int answer = (call);                                                               \
        EXPECT(answer == -1 && errno == (code));                                           \
    } while (0)

union address {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static const char *host;
static uint16_t next_port;
static struct rdma_event_channel *channel;

static union address at(const char *name, uint16_t port)
{
    union address address;
    memset(&address, 0, sizeof address);
    if (strchr(name, ':')) {
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons(port);
        inet_pton(AF_INET6, name, &address.v6.sin6_addr);
    } else {
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = htons(port);
        inet_pton(AF_INET, name, &address.v4.sin_addr);
    }
    return address;
}

static const char *anywhere(void)
{
    return strchr(host, ':') ? "::" : "0.0.0.0";
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *on)
{
    struct rdma_cm_id *id = NULL;
    EXPECT(rdma_create_id(on, &id, NULL, RDMA_PS_TCP) == 0);
    return id;
}

static int bind_to(struct rdma_cm_id *id, const char *name, uint16_t port)
{
    union address address = at(name, port);
    return rdma_bind_addr(id, &address.sa);
}

/* The next event, which must be this one. */
static struct rdma_cm_event *next(struct rdma_event_channel *from, enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event = NULL;
    struct pollfd poll_fd = {.fd = from->fd, .events = POLLIN};
    EXPECT(poll(&poll_fd, 1, 10000) == 1);
    if (!poll_fd.revents || rdma_get_cm_event(from, &event)) {
        printf("no event, but %s expected\n", rdma_event_str(wanted));
        exit(1);
    }
    if (event->event != wanted)
        printf("%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
    EXPECT(event->event == wanted);
    return event;
}

static void take(struct rdma_event_channel *from, enum rdma_cm_event_type wanted)
{
    EXPECT(rdma_ack_cm_event(next(from, wanted)) == 0);
}

static int is_silent(struct rdma_event_channel *on)
{
    struct pollfd poll_fd = {.fd = on->fd, .events = POLLIN};
    return poll(&poll_fd, 1, 50) == 0;
}

static struct ibv_qp_init_attr small(void)
{
    struct ibv_qp_init_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    return attr;
}

static void misuse(void)
{
    struct rdma_cm_id *id = NULL;
    struct rdma_cm_id *request;
    union address nowhere = at("203.0.113.77", 1);
    FAILS_WITH(EPROTONOSUPPORT, rdma_create_id(channel, &id, NULL, (enum rdma_port_space)77));
    id = new_id(channel);
    FAILS_WITH(EADDRNOTAVAIL, rdma_bind_addr(id, &nowhere.sa));
    FAILS_WITH(EINVAL, rdma_resolve_route(id, 1000));
    FAILS_WITH(EINVAL, rdma_connect(id, NULL));
    FAILS_WITH(EINVAL, rdma_accept(id, NULL));
    FAILS_WITH(EINVAL, rdma_disconnect(id));
    FAILS_WITH(EINVAL, rdma_get_request(id, &request));
    EXPECT(rdma_get_src_port(id) == 0);
    EXPECT(bind_to(id, host, 0) == 0);
    FAILS_WITH(EINVAL, bind_to(id, host, 0));
    EXPECT(rdma_listen(id, 1) == 0);
    FAILS_WITH(EINVAL, rdma_listen(id, 1));
    EXPECT(is_silent(channel));
    EXPECT(rdma_destroy_id(id) == 0);
    EXPECT(strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED") == 0);
}

static void options(void)
{
    struct rdma_cm_id *id = new_id(channel);
    uint8_t byte = 16, too_long = 32;
    int on = 1;
    EXPECT(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof byte) == 0);
    EXPECT(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof byte) == 0);
    EXPECT(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    EXPECT(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on) == 0);
    FAILS_WITH(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &too_long, 1));
    FAILS_WITH(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof on));
    FAILS_WITH(ENOSYS, rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof on));
    EXPECT(rdma_destroy_id(id) == 0);
}

/* A port belongs to whoever bound it, listening or not. */
static void ports(void)
{
    uint16_t port = next_port++;
    int on = 1;
    struct rdma_cm_id *first = new_id(channel), *second = new_id(channel), *third = new_id(channel);
    EXPECT(bind_to(first, host, port) == 0);
    EXPECT(rdma_get_src_port(first) == htons(port));
    FAILS_WITH(EADDRINUSE, bind_to(second, host, port));
    FAILS_WITH(EADDRINUSE, bind_to(second, anywhere(), port));
    EXPECT(bind_to(second, host, next_port++) == 0);

    /* With this option it may be bound twice; but only one listens. */
    EXPECT(rdma_set_option(third, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    EXPECT(bind_to(third, host, port) == 0);
    EXPECT(rdma_listen(first, 1) == 0);
    FAILS_WITH(EADDRINUSE, rdma_listen(third, 1));
    EXPECT(rdma_destroy_id(third) == 0);
    EXPECT(rdma_destroy_id(second) == 0);
    EXPECT(rdma_destroy_id(first) == 0);

    /* It is free again at once, for any address. */
    first = new_id(channel);
    EXPECT(bind_to(first, anywhere(), port) == 0);
    second = new_id(channel);
    FAILS_WITH(EADDRINUSE, bind_to(second, host, port));
    EXPECT(rdma_destroy_id(second) == 0);
    EXPECT(rdma_destroy_id(first) == 0);

    /* Ports for those who do not care are all different. */
    struct rdma_cm_id *many[50];
    for (int i = 0; i < 50; i++) {
        many[i] = new_id(channel);
        EXPECT(bind_to(many[i], host, 0) == 0);
        EXPECT(rdma_get_src_port(many[i]) != 0);
        for (int j = 0; j < i; j++)
            EXPECT(rdma_get_src_port(many[i]) != rdma_get_src_port(many[j]));
    }
    for (int i = 0; i < 50; i++)
        EXPECT(rdma_destroy_id(many[i]) == 0);

    /* Another port space has ports of its own. */
    first = new_id(channel);
    EXPECT(bind_to(first, host, port) == 0);
    EXPECT(rdma_create_id(channel, &second, NULL, RDMA_PS_UDP) == 0);
    EXPECT(bind_to(second, host, port) == 0);
    EXPECT(rdma_destroy_id(second) == 0);
    EXPECT(rdma_destroy_id(first) == 0);
}

/* A program may tell its peer of a port as soon as it has bound it: that it listens there later must not fail. */
static void chosen_ports_stay(void)
{
    enum { HELD = 700, BOUND = 250 };
    static int held[HELD];
    for (int i = 0; i < HELD; i++) {
        union address any = at(host, 0);
        held[i] = socket(any.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT(bind(held[i], &any.sa, sizeof any) == 0);
    }
    int moved = 0;
    for (int i = 0; i < BOUND; i++) {
        struct rdma_cm_id *id = new_id(channel);
        EXPECT(bind_to(id, host, 0) == 0);
        uint16_t told = rdma_get_src_port(id);
        /* Nobody else gets it in between. */
        union address same = at(host, ntohs(told));
        int other = socket(same.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT(bind(other, &same.sa, sizeof same) == -1 && errno == EADDRINUSE);
        close(other);
        EXPECT(rdma_listen(id, 1) == 0);
        moved += rdma_get_src_port(id) != told;
        EXPECT(rdma_destroy_id(id) == 0);
    }
    EXPECT(moved == 0);
    for (int i = 0; i < HELD; i++)
        close(held[i]);
}

static struct rdma_cm_id *listener(uint16_t *port)
{
    struct rdma_cm_id *id = new_id(channel);
    EXPECT(bind_to(id, host, 0) == 0);
    EXPECT(rdma_listen(id, 8) == 0);
    *port = ntohs(rdma_get_src_port(id));
    return id;
}

/* An identifier on a channel of its own that is about to connect. */
static struct rdma_cm_id *caller_of(struct rdma_event_channel *on, const char *peer, uint16_t port)
{
    struct rdma_cm_id *id = new_id(on);
    union address address = at(peer, port);
    struct ibv_qp_init_attr attr = small();
    EXPECT(rdma_resolve_addr(id, NULL, &address.sa, 1000) == 0);
    take(on, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT(rdma_resolve_route(id, 1000) == 0);
    take(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
    EXPECT(rdma_get_dst_port(id) == htons(port));
    EXPECT(rdma_create_qp(id, NULL, &attr) == 0);
    return id;
}

static struct rdma_cm_id *caller(struct rdma_event_channel *on, uint16_t port)
{
    return caller_of(on, host, port);
}

static void call(struct rdma_cm_id *id, const char *words)
{
    struct rdma_conn_param param;
    memset(&param, 0, sizeof param);
    param.private_data = words;
    param.private_data_len = strlen(words);
    param.retry_count = param.rnr_retry_count = 7;
    EXPECT(rdma_connect(id, &param) == 0);
}

/* What the devices speak is for the user to choose. */
static int over_iwarp(void)
{
    const char *wire = getenv("NONIC_WIRE");
    return wire && !strcmp(wire, "iwarp");
}

static const char *loopback_device(void)
{
    return over_iwarp() ? "iwarp_lo" : "roce_lo";
}

static int says(struct rdma_cm_event *event, const char *words)
{
    size_t len = strlen(words);
    return event->param.conn.private_data_len >= len && !memcmp(event->param.conn.private_data, words, len);
}

/* Nobody listens; somebody does not want us; words go both ways. */
static void refusals(void)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct rdma_cm_id *id = caller(own, next_port++);
    struct rdma_cm_event *event;
    uint16_t port;
    call(id, "anybody?");
    event = next(own, RDMA_CM_EVENT_REJECTED);
    /* As on InfiniBand: there is no such service. */
    EXPECT(event->status == (over_iwarp() ? -ECONNREFUSED : 8));
    EXPECT(rdma_ack_cm_event(event) == 0);
    rdma_destroy_qp(id);
    EXPECT(rdma_destroy_id(id) == 0);

    struct rdma_cm_id *passive = listener(&port);
    id = caller(own, port);
    call(id, "let me in");
    event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT(event->listen_id == passive);
    EXPECT(says(event, "let me in"));
    struct rdma_cm_id *asked = event->id;
    EXPECT(rdma_get_dst_port(asked) == rdma_get_src_port(id));
    EXPECT(rdma_ack_cm_event(event) == 0);
    EXPECT(rdma_reject(asked, "not today", 9) == 0);
    EXPECT(rdma_destroy_id(asked) == 0);
    event = next(own, RDMA_CM_EVENT_REJECTED);
    /* Whoever was asked decided so. */
    EXPECT(event->status == (over_iwarp() ? -ECONNREFUSED : 28));
    EXPECT(says(event, "not today"));
    EXPECT(rdma_ack_cm_event(event) == 0);
    rdma_destroy_qp(id);
    EXPECT(rdma_destroy_id(id) == 0);
    EXPECT(rdma_destroy_id(passive) == 0);
    rdma_destroy_event_channel(own);
}

/* A host where no RDMA program runs, and whose kernel says so. */
static void deserted_host(void)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    /* This host as well, by an address that no device has; IPv6 has no such one. */
    struct rdma_cm_id *id = caller_of(own, "127.0.0.2", next_port++);
    call(id, "anybody?");
    struct rdma_cm_event *event = next(own, over_iwarp() ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE);
    EXPECT(event->status == -ECONNREFUSED);
    EXPECT(rdma_ack_cm_event(event) == 0);
    rdma_destroy_qp(id);
    EXPECT(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(own);
}

/* A connection, both ends of it, on these channels. */
static void connect_pair(struct rdma_event_channel *own, struct rdma_cm_id *passive, uint16_t port,
                         struct rdma_cm_id *ends[2])
{
    struct ibv_qp_init_attr attr = small();
    struct rdma_cm_event *event;
    (void)passive;
    ends[0] = caller(own, port);
    call(ends[0], "hello");
    event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends[1] = event->id;
    EXPECT(rdma_ack_cm_event(event) == 0);
    EXPECT(rdma_create_qp(ends[1], NULL, &attr) == 0);
    EXPECT(rdma_accept(ends[1], NULL) == 0);
    take(own, RDMA_CM_EVENT_ESTABLISHED);
    take(channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void hang_up(struct rdma_event_channel *own, struct rdma_cm_id *ends[2])
{
    EXPECT(rdma_disconnect(ends[0]) == 0);
    take(channel, RDMA_CM_EVENT_DISCONNECTED);
    take(own, RDMA_CM_EVENT_DISCONNECTED);
    for (int i = 0; i < 2; i++) {
        rdma_destroy_qp(ends[i]);
        EXPECT(rdma_destroy_id(ends[i]) == 0);
    }
}

/* Events go where an identifier goes; with it they are gone. */
static void migration(void)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct rdma_event_channel *other = rdma_create_event_channel();
    struct rdma_cm_id *ends[2];
    uint16_t port;
    struct rdma_cm_id *passive = listener(&port);
    connect_pair(own, passive, port, ends);
    EXPECT(rdma_disconnect(ends[1]) == 0);
    take(channel, RDMA_CM_EVENT_DISCONNECTED);
    /* The other end's event waits on its channel; it moves along. */
    struct pollfd poll_fd = {.fd = own->fd, .events = POLLIN};
    EXPECT(poll(&poll_fd, 1, 10000) == 1);
    EXPECT(rdma_migrate_id(ends[0], other) == 0);
    EXPECT(ends[0]->channel == other);
    EXPECT(is_silent(own));
    take(other, RDMA_CM_EVENT_DISCONNECTED);
    for (int i = 0; i < 2; i++) {
        rdma_destroy_qp(ends[i]);
        EXPECT(rdma_destroy_id(ends[i]) == 0);
    }

    /* Destroyed before its event was fetched. */
    connect_pair(own, passive, port, ends);
    EXPECT(rdma_disconnect(ends[1]) == 0);
    take(channel, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT(poll(&poll_fd, 1, 10000) == 1);
    rdma_destroy_qp(ends[0]);
    EXPECT(rdma_destroy_id(ends[0]) == 0);
    EXPECT(is_silent(own));
    rdma_destroy_qp(ends[1]);
    EXPECT(rdma_destroy_id(ends[1]) == 0);

    /* Destroyed with a request that nobody fetched: who asked is told. */
    struct rdma_cm_id *id = caller(own, port);
    call(id, "hello?");
    poll_fd.fd = channel->fd;
    EXPECT(poll(&poll_fd, 1, 10000) == 1);
    EXPECT(rdma_destroy_id(passive) == 0);
    EXPECT(is_silent(channel));
    take(own, RDMA_CM_EVENT_REJECTED);
    rdma_destroy_qp(id);
    EXPECT(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(own);
    rdma_destroy_event_channel(other);
}

/* Over TCP, private data is what was sent, without padding; whatever its length. */
static void private_data(void)
{
    static const int lengths[] = {0, 1, 56, 57, 196, 252, 255};
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct ibv_qp_init_attr attr = small();
    struct rdma_cm_event *event;
    uint8_t words[256];
    uint16_t port;
    struct rdma_cm_id *passive = listener(&port);
    for (unsigned i = 0; i < sizeof words; i++)
        words[i] = i;
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct rdma_conn_param param = {.private_data = words, .private_data_len = lengths[i]};
        struct rdma_cm_id *id = caller(own, port);
        EXPECT(rdma_connect(id, &param) == 0);
        event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        EXPECT(event->param.conn.private_data_len == lengths[i]);
        EXPECT(!lengths[i] || !memcmp(event->param.conn.private_data, words, lengths[i]));
        EXPECT(event->param.conn.qp_num == 0);
        struct rdma_cm_id *asked = event->id;
        EXPECT(rdma_ack_cm_event(event) == 0);
        EXPECT(rdma_create_qp(asked, NULL, &attr) == 0);
        EXPECT(rdma_accept(asked, &param) == 0);
        event = next(own, RDMA_CM_EVENT_ESTABLISHED);
        EXPECT(event->param.conn.private_data_len == lengths[i]);
        EXPECT(!lengths[i] || !memcmp(event->param.conn.private_data, words, lengths[i]));
        EXPECT(rdma_ack_cm_event(event) == 0);
        take(channel, RDMA_CM_EVENT_ESTABLISHED);
        /* From the other end; nothing follows. */
        EXPECT(rdma_disconnect(asked) == 0);
        take(own, RDMA_CM_EVENT_DISCONNECTED);
        take(channel, RDMA_CM_EVENT_DISCONNECTED);
        EXPECT(is_silent(own) && is_silent(channel));
        rdma_destroy_qp(id);
        rdma_destroy_qp(asked);
        EXPECT(rdma_destroy_id(id) == 0 && rdma_destroy_id(asked) == 0);
    }
    EXPECT(rdma_destroy_id(passive) == 0);
    rdma_destroy_event_channel(own);
}

/* A queue pair that is destroyed while it is connected: both ends hear that it is over. */
static void destroyed_while_connected(void)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct rdma_cm_id *ends[2];
    uint16_t port;
    struct rdma_cm_id *passive = listener(&port);
    for (int first = 0; first < 2; first++) {
        connect_pair(own, passive, port, ends);
        if (!first)
            EXPECT(rdma_disconnect(ends[0]) == 0);
        rdma_destroy_qp(ends[0]);
        take(own, RDMA_CM_EVENT_DISCONNECTED);
        take(channel, RDMA_CM_EVENT_DISCONNECTED);
        rdma_destroy_qp(ends[1]);
        EXPECT(rdma_destroy_id(ends[0]) == 0 && rdma_destroy_id(ends[1]) == 0);
    }
    /* The identifier as well. */
    connect_pair(own, passive, port, ends);
    rdma_destroy_qp(ends[0]);
    EXPECT(rdma_destroy_id(ends[0]) == 0);
    take(channel, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(ends[1]);
    EXPECT(rdma_destroy_id(ends[1]) == 0 && rdma_destroy_id(passive) == 0);
    rdma_destroy_event_channel(own);
}

/* Datagrams and groups are not for TCP, and say so where they are asked for. */
static void only_connections(void)
{
    struct rdma_cm_id *id;
    union address address = at(host, next_port++), group;
    struct ibv_qp_init_attr attr = small();
    EXPECT(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
    EXPECT(rdma_resolve_addr(id, NULL, &address.sa, 1000) == 0);
    take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    attr.qp_type = IBV_QPT_UD;
    FAILS_WITH(EOPNOTSUPP, rdma_create_qp(id, NULL, &attr));
    FAILS_WITH(EOPNOTSUPP, rdma_connect(id, NULL));
    group = at(address.sa.sa_family == AF_INET ? "239.1.1.1" : "ff02::77", 0);
    FAILS_WITH(EOPNOTSUPP, rdma_join_multicast(id, &group.sa, NULL));
    EXPECT(rdma_destroy_id(id) == 0);
    EXPECT(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
    EXPECT(bind_to(id, host, 0) == 0);
    FAILS_WITH(EOPNOTSUPP, rdma_listen(id, 1));
    EXPECT(rdma_destroy_id(id) == 0);
}

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void nothing_is_left(void)
{
    struct rdma_event_channel *own = rdma_create_event_channel();
    struct rdma_cm_id *ends[2];
    uint16_t port;
    struct rdma_cm_id *passive = listener(&port);
    connect_pair(own, passive, port, ends);
    hang_up(own, ends);
    int before = open_descriptors();
    for (int i = 0; i < 100; i++) {
        connect_pair(own, passive, port, ends);
        hang_up(own, ends);
    }
    EXPECT(open_descriptors() == before);
    EXPECT(rdma_destroy_id(passive) == 0);
    rdma_destroy_event_channel(own);
}

static uint16_t endpoint_port;

static void *serve(void *unused)
{
    struct rdma_cm_id *passive = unused, *id = NULL;
    static char message[16];
    struct ibv_wc wc;
    EXPECT(rdma_get_request(passive, &id) == 0);
    EXPECT(id->qp != NULL);
    struct ibv_mr *mr = rdma_reg_msgs(id, message, sizeof message);
    EXPECT(mr != NULL);
    EXPECT(rdma_post_recv(id, NULL, message, sizeof message, mr) == 0);
    EXPECT(rdma_accept(id, NULL) == 0);
    EXPECT(rdma_get_recv_comp(id, &wc) == 1);
    EXPECT(wc.status == IBV_WC_SUCCESS && !strcmp(message, "by endpoint"));
    EXPECT(rdma_disconnect(id) == 0);
    EXPECT(rdma_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    return NULL;
}

/* Calls that wait for what they lead to. */
static void endpoints(void)
{
    struct rdma_addrinfo hints, *info = NULL;
    struct rdma_cm_id *passive = NULL, *id = NULL;
    struct ibv_qp_init_attr attr = small();
    char port[8], message[16] = "by endpoint";
    struct ibv_wc wc;
    pthread_t thread;
    endpoint_port = next_port++;
    snprintf(port, sizeof port, "%u", endpoint_port);
    memset(&hints, 0, sizeof hints);
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = RAI_PASSIVE;
    EXPECT(rdma_getaddrinfo(host, port, &hints, &info) == 0);
    EXPECT(rdma_create_ep(&passive, info, NULL, &attr) == 0);
    rdma_freeaddrinfo(info);
    EXPECT(rdma_listen(passive, 1) == 0);
    EXPECT(pthread_create(&thread, NULL, serve, passive) == 0);

    hints.ai_flags = 0;
    attr = small();
    attr.sq_sig_all = 1;
    EXPECT(rdma_getaddrinfo(host, port, &hints, &info) == 0);
    EXPECT(rdma_create_ep(&id, info, NULL, &attr) == 0);
    EXPECT(id->qp != NULL && id->send_cq != NULL);
    struct ibv_mr *mr = rdma_reg_msgs(id, message, sizeof message);
    EXPECT(rdma_connect(id, NULL) == 0);
    EXPECT(id->event != NULL && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
    EXPECT(rdma_post_send(id, NULL, message, sizeof message, mr, 0) == 0);
    EXPECT(rdma_get_send_comp(id, &wc) == 1);
    EXPECT(wc.status == IBV_WC_SUCCESS);
    EXPECT(rdma_disconnect(id) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(rdma_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    rdma_destroy_ep(passive);

    /* Nobody listens any more. */
    attr = small();
    EXPECT(rdma_create_ep(&id, info, NULL, &attr) == 0);
    FAILS_WITH(ECONNREFUSED, rdma_connect(id, NULL));
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(info);
}

/* With nothing to look up, the hints are the answer. */
static void hints_only(void)
{
    union address local = at(host, 7471);
    struct rdma_addrinfo hints, *info = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_family = local.sa.sa_family;
    hints.ai_qp_type = IBV_QPT_UD;
    hints.ai_port_space = RDMA_PS_UDP;
    hints.ai_src_addr = &local.sa;
    hints.ai_src_len = sizeof local;
    EXPECT(rdma_getaddrinfo(NULL, NULL, &hints, &info) == 0);
    EXPECT(info->ai_flags == RAI_PASSIVE && info->ai_family == local.sa.sa_family);
    EXPECT(info->ai_qp_type == IBV_QPT_UD && info->ai_port_space == RDMA_PS_UDP);
    EXPECT(info->ai_src_len == sizeof local && !memcmp(info->ai_src_addr, &local, sizeof local));
    EXPECT(info->ai_dst_len == 0 && info->ai_dst_addr == NULL && info->ai_next == NULL);
    rdma_freeaddrinfo(info);

    hints.ai_flags = 0;
    hints.ai_dst_addr = &local.sa;
    hints.ai_dst_len = sizeof local;
    EXPECT(rdma_getaddrinfo(NULL, NULL, &hints, &info) == 0);
    EXPECT(info->ai_flags == 0 && info->ai_dst_len == sizeof local);
    EXPECT(!memcmp(info->ai_dst_addr, &local, sizeof local) && info->ai_src_addr != info->ai_dst_addr);
    rdma_freeaddrinfo(info);

    /* Our end is the program's to choose if the lookup does not. */
    EXPECT(rdma_getaddrinfo(host, "7471", &hints, &info) == 0);
    EXPECT(info->ai_dst_len > 0 && info->ai_src_len == sizeof local);
    rdma_freeaddrinfo(info);
}

/* Loopback is no particular device where there are others, as in the kernel; requests that come over it arrive. */
static void bound_to_loopback(void)
{
    int count = 0;
    struct ibv_context **list = rdma_get_devices(&count);
    int alone = count == 1 && !strcmp(ibv_get_device_name(list[0]->device), loopback_device());
    for (int i = 0; !alone && i < count; i++)
        EXPECT(strcmp(ibv_get_device_name(list[i]->device), loopback_device()) != 0);
    rdma_free_devices(list);

    struct rdma_cm_id *listener = new_id(channel), *other = new_id(channel), *client = new_id(channel);
    EXPECT(bind_to(listener, host, 0) == 0);
    EXPECT(alone ? listener->verbs != NULL : !listener->verbs && !listener->pd && !listener->port_num);
    uint16_t port = ntohs(rdma_get_src_port(listener));
    EXPECT(port != 0);
    FAILS_WITH(EADDRINUSE, bind_to(other, host, port));
    EXPECT(rdma_listen(listener, 1) == 0);

    union address address = at(host, port);
    EXPECT(rdma_resolve_addr(client, NULL, &address.sa, 1000) == 0);
    take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT(client->verbs && !strcmp(ibv_get_device_name(client->verbs->device), loopback_device()));
    EXPECT(rdma_resolve_route(client, 1000) == 0);
    take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct ibv_qp_init_attr attr = small();
    EXPECT(rdma_create_qp(client, NULL, &attr) == 0);
    EXPECT(rdma_connect(client, NULL) == 0);
    struct rdma_cm_event *request = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *server = request->id;
    EXPECT(request->listen_id == listener && server->verbs == client->verbs);
    EXPECT(rdma_ack_cm_event(request) == 0);
    EXPECT(rdma_reject(server, NULL, 0) == 0);
    take(channel, RDMA_CM_EVENT_REJECTED);
    rdma_destroy_qp(client);
    EXPECT(rdma_destroy_id(server) == 0 && rdma_destroy_id(client) == 0);
    EXPECT(rdma_destroy_id(other) == 0 && rdma_destroy_id(listener) == 0);
}

static void devices(void)
{
    int count = 0;
    struct ibv_context **list = rdma_get_devices(&count);
    EXPECT(list != NULL && count > 0 && list[count] == NULL);
    rdma_free_devices(list);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    host = argv[1];
    next_port = atoi(argv[2]);
    channel = rdma_create_event_channel();
    EXPECT(channel != NULL);
    misuse();
    options();
    ports();
    refusals();
    deserted_host();
    migration();
    endpoints();
    hints_only();
    bound_to_loopback();
    devices();
    if (over_iwarp()) {
        chosen_ports_stay();
        private_data();
        destroyed_while_connected();
        only_connections();
    }
    nothing_is_left();
    rdma_destroy_event_channel(channel);
    if (!failures)
        printf("as expected\n");
    return failures != 0;
}
