/*
 * A service with a short backlog, peers that connect to its TCP port and say nothing, and clients that all come at once. A
 * backlog limits how many requests wait for the program, so every client is served, whoever else is there.
 *
 * usage: backlog ADDRESS PORT BACKLOG SILENT CLIENTS ROUNDS
 *
 * Prints the line of each expectation that does not hold, and fails then.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static struct sockaddr_in address;

static struct ibv_qp_init_attr queue_pair(void)
{
    struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC};
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 1;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    return attributes;
}

static void accept_request(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attributes = queue_pair();
    struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
    EXPECT(rdma_create_qp(id, NULL, &attributes) == 0);
    EXPECT(rdma_accept(id, &parameters) == 0);
}

/* Accepts whoever asks, until it is killed. */
static void serve(int backlog, int ready)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener;
    struct rdma_cm_event *event;
    EXPECT(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    EXPECT(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
    EXPECT(rdma_listen(listener, backlog) == 0);
    EXPECT(write(ready, "", 1) == 1);
    while (rdma_get_cm_event(channel, &event) == 0) {
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            accept_request(id);
        } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
            rdma_destroy_qp(id);
            rdma_destroy_id(id);
        }
    }
}

static int connects(void)
{
    struct ibv_qp_init_attr attributes = queue_pair();
    struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
    struct rdma_cm_id *id;
    if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) ||
        rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 5000) || rdma_resolve_route(id, 5000) ||
        rdma_create_qp(id, NULL, &attributes) || rdma_connect(id, &parameters)) {
        perror("a client");
        return 0;
    }
    return rdma_disconnect(id) == 0;
}

/* Starts a process that ends with this one. */
static pid_t start(void)
{
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

static int connect_silently(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* Clients that come at once; how many of them were served. */
static int serve_all(int clients)
{
    pid_t started[clients];
    int served = 0;
    for (int i = 0; i < clients; i++) {
        started[i] = start();
        if (started[i] == 0)
            _exit(!connects());
    }
    for (int i = 0; i < clients; i++) {
        int status;
        EXPECT(waitpid(started[i], &status, 0) == started[i]);
        served += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return served;
}

int main(int argc, char **argv)
{
    int ready[2];
    char byte;
    if (argc != 7)
        return 2;
    address.sin_family = AF_INET;
    address.sin_port = htons(atoi(argv[2]));
    EXPECT(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1 && pipe(ready) == 0);
    int backlog = atoi(argv[3]), silent = atoi(argv[4]), clients = atoi(argv[5]), rounds = atoi(argv[6]);
    pid_t server = start();
    if (server == 0) {
        serve(backlog, ready[1]);
        _exit(1);
    }
    EXPECT(read(ready[0], &byte, 1) == 1);
    for (int round = 0; round < rounds; round++) {
        int fds[silent + 1];
        for (int i = 0; i < silent; i++)
            fds[i] = connect_silently();
        int served = serve_all(clients);
        printf("%d of %d clients served beside %d silent peers\n", served, clients, silent);
        EXPECT(served == clients);
        for (int i = 0; i < silent; i++)
            close(fds[i]);
    }
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return failures != 0;
}
