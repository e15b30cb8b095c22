/*
 * What both sides of a connection do alike: give up with a reason, take events, and make what a queue pair needs. The
 * connection manager's own calls are in server.c and client.c, in the order in which they happen.
 */
#ifndef COMMON_H
#define COMMON_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROOM = 4096, /* the longest message */
	RECEIVED = 1, /* the wr_id of the receive */
	SENT = 2, /* the wr_id of the send */
};

/* The greeting that a client is known by. It travels as private data of the request, at most 56 bytes. */
#define GREETING "a question"

/* Every call answers whether it worked; none is ever ignored. */
static inline void must(int worked, const char *what)
{
	if (worked)
		return;
	perror(what);
	exit(1);
}

/*
 * The next event of a channel. It must be acknowledged (rdma_ack_cm_event) once everything in it has been looked at:
 * that frees it, and rdma_destroy_id waits until all events of an identifier are acknowledged.
 */
static inline struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	return event;
}

/* Takes the one event that may come now. Anything else ends the program. */
static inline void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(channel);

	if (event->event != wanted) {
		fprintf(stderr, "%s came instead of %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
		exit(1);
	}
	must(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
}

/* What a queue pair needs. */
struct side {
	struct ibv_pd *pd; /* the protection domain: memory and queue pairs of one domain may meet */
	struct ibv_comp_channel *channel; /* where to sleep until a completion comes */
	struct ibv_cq *cq; /* where sends and receives report that they are done */
	struct ibv_mr *in, *out; /* registered memory: the NIC touches nothing else */
	char received[ROOM], sent[ROOM];
};

/*
 * Makes it, and a queue pair for the identifier. The identifier knows its device (id->verbs) once its address is known:
 * on the active side after resolving it, on the passive side when the request is here.
 */
static inline void make(struct side *side, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wanted = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};

	must(!!(side->pd = ibv_alloc_pd(id->verbs)), "ibv_alloc_pd");
	must(!!(side->channel = ibv_create_comp_channel(id->verbs)), "ibv_create_comp_channel");
	must(!!(side->cq = ibv_create_cq(id->verbs, 2, NULL, side->channel, 0)), "ibv_create_cq");
	side->in = ibv_reg_mr(side->pd, side->received, ROOM, IBV_ACCESS_LOCAL_WRITE);
	side->out = ibv_reg_mr(side->pd, side->sent, ROOM, 0);
	must(side->in && side->out, "ibv_reg_mr");
	wanted.send_cq = wanted.recv_cq = side->cq;
	/* Unlike ibv_create_qp, this brings the queue pair to INIT, so that receives can be posted. */
	must(!rdma_create_qp(id, side->pd, &wanted), "rdma_create_qp");
}

/* Takes it apart in the opposite order: what is still in use cannot be destroyed. */
static inline void take_apart(struct side *side, struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	must(!ibv_dereg_mr(side->in) && !ibv_dereg_mr(side->out), "ibv_dereg_mr");
	must(!ibv_destroy_cq(side->cq), "ibv_destroy_cq");
	must(!ibv_destroy_comp_channel(side->channel), "ibv_destroy_comp_channel");
	must(!ibv_dealloc_pd(side->pd), "ibv_dealloc_pd");
}

static inline void post_receive(struct side *side, struct rdma_cm_id *id)
{
	struct ibv_sge place = { .addr = (uintptr_t)side->received, .length = ROOM, .lkey = side->in->lkey };
	struct ibv_recv_wr request = { .wr_id = RECEIVED, .sg_list = &place, .num_sge = 1 }, *bad;

	must(!ibv_post_recv(id->qp, &request, &bad), "ibv_post_recv");
}

static inline void post_send(struct side *side, struct rdma_cm_id *id, size_t length)
{
	struct ibv_sge place = { .addr = (uintptr_t)side->sent, .length = (uint32_t)length, .lkey = side->out->lkey };
	struct ibv_send_wr request = { .wr_id = SENT, .sg_list = &place, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	must(!ibv_post_send(id->qp, &request, &bad), "ibv_post_send");
}

/*
 * Waits for a completion. Asking to be notified comes before looking: a completion that comes in between is either
 * seen at once or wakes us up.
 */
static inline struct ibv_wc completion(struct side *side)
{
	struct ibv_wc done;
	struct ibv_cq *cq;
	void *context;
	int count;

	for (;;) {
		must(!ibv_req_notify_cq(side->cq, 0), "ibv_req_notify_cq");
		count = ibv_poll_cq(side->cq, 1, &done);
		must(count >= 0, "ibv_poll_cq");
		if (count)
			break;
		must(!ibv_get_cq_event(side->channel, &cq, &context), "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
	if (done.status != IBV_WC_SUCCESS) {
		/* A peer that was killed shows here: "transport retry counter exceeded". */
		fprintf(stderr, "request %d: %s\n", (int)done.wr_id, ibv_wc_status_str(done.status));
		exit(1);
	}
	return done;
}

#endif
