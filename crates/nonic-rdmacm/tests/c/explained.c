/* Ways in which connections go wrong, one per run: explained CASE PORT. Prints what the program sees, which is little: an event, a status.
 * The test reads what NONIC_LOG says of it on standard error. Both ends are in this process. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../../nonic-verbs/tests/c/need.h"

enum { SIZE = 4096, PATIENCE_S = 30 };
enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static struct rdma_event_channel *near_events, *far_events;
static struct rdma_cm_id *near, *far, *listener;
static struct sockaddr_in address = { .sin_family = AF_INET };
static struct ibv_mr *near_mr, *far_mr;
static char near_memory[SIZE], far_memory[SIZE];

/* The next event of a channel: its type, after it was acknowledged. */
static enum rdma_cm_event_type next(struct rdma_event_channel *channel, struct rdma_cm_id **asked)
{
	struct rdma_cm_event *event;
	NEED(!rdma_get_cm_event(channel, &event));
	enum rdma_cm_event_type type = event->event;
	if (asked)
		*asked = event->id;
	NEED(!rdma_ack_cm_event(event));
	return type;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	NEED(!rdma_create_qp(id, NULL, &init));
}

static void listen_there(void)
{
	NEED(!rdma_create_id(far_events, &listener, NULL, RDMA_PS_TCP));
	NEED(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 4));
}

static void ask(void)
{
	struct rdma_conn_param param = { .initiator_depth = 4, .responder_resources = 4, .retry_count = 2, .rnr_retry_count = 1 };
	NEED(!rdma_create_id(near_events, &near, NULL, RDMA_PS_TCP));
	NEED(!rdma_resolve_addr(near, NULL, (struct sockaddr *)&address, 2000));
	NEED(next(near_events, NULL) == RDMA_CM_EVENT_ADDR_RESOLVED);
	NEED(!rdma_resolve_route(near, 2000) && next(near_events, NULL) == RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(near);
	NEED(!rdma_connect(near, &param));
}

static void receive(struct rdma_cm_id *id, struct ibv_mr *mr, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;
	NEED(!ibv_post_recv(id->qp, &wr, &bad));
}

/* Connects both; the far side has a receive of this length before that, if it is not 0. */
static void connect_both(uint32_t far_receive)
{
	listen_there();
	ask();
	NEED(next(far_events, &far) == RDMA_CM_EVENT_CONNECT_REQUEST);
	create_qp(far);
	NEED((near_mr = ibv_reg_mr(near->pd, near_memory, SIZE, ALL)) && (far_mr = ibv_reg_mr(far->pd, far_memory, SIZE, ALL)));
	if (far_receive)
		receive(far, far_mr, far_receive);
	struct rdma_conn_param param = { .initiator_depth = 4, .responder_resources = 4, .rnr_retry_count = 1 };
	NEED(!rdma_accept(far, &param));
	NEED(next(near_events, NULL) == RDMA_CM_EVENT_ESTABLISHED && next(far_events, NULL) == RDMA_CM_EVENT_ESTABLISHED);
}

static void post(enum ibv_wr_opcode opcode, uint32_t length, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)near_memory, length, near_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)far_memory;
	wr.wr.rdma.rkey = rkey;
	NEED(!ibv_post_send(near->qp, &wr, &bad));
}

/* Waits for the completion of this number and tells its status. */
static void told(struct ibv_cq *cq, uint64_t wr_id)
{
	struct timespec start, now;
	struct ibv_wc wc;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			if (wc.wr_id == wr_id) {
				printf("%s\n", ibv_wc_status_str(wc.status));
				return;
			}
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < PATIENCE_S);
	printf("nothing\n");
	exit(1);
}

static void nobody_listens(void)
{
	ask();
	printf("%s\n", rdma_event_str(next(near_events, NULL)));
}

static void program_refuses(void)
{
	listen_there();
	ask();
	NEED(next(far_events, &far) == RDMA_CM_EVENT_CONNECT_REQUEST);
	NEED(!rdma_reject(far, "version 2", 9));
	printf("%s\n", rdma_event_str(next(near_events, NULL)));
}

static void iwarp_read_wrong_key(void)
{
	connect_both(0);
	post(IBV_WR_RDMA_READ, 64, far_mr->rkey ^ 0x55);
	told(near->send_cq, 7);
}

/* A WRITE is done when TCP has taken it, whatever the peer makes of it; then the connection ends. */
static void iwarp_write_wrong_key(void)
{
	connect_both(0);
	receive(near, near_mr, 64);
	post(IBV_WR_RDMA_WRITE, 64, far_mr->rkey ^ 0x55);
	told(near->recv_cq, 9);
}

static void iwarp_receive_too_short(void)
{
	connect_both(100);
	post(IBV_WR_SEND, 300, 0);
	told(far->recv_cq, 9);
}

static void iwarp_no_receive(void)
{
	connect_both(0);
	receive(near, near_mr, 64);
	post(IBV_WR_SEND, 64, 0);
	told(near->recv_cq, 9);
}

#define CASE(name) { #name, name }
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(nobody_listens), CASE(program_refuses), CASE(iwarp_read_wrong_key), CASE(iwarp_write_wrong_key),
	CASE(iwarp_receive_too_short), CASE(iwarp_no_receive),
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3) {
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			printf("%s\n", cases[i].name);
		return 0;
	}
	address.sin_port = htons(atoi(argv[2]));
	NEED(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr) == 1);
	NEED((near_events = rdma_create_event_channel()) && (far_events = rdma_create_event_channel()));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	printf("there is no case %s\n", argv[1]);
	return 1;
}
