/*
 * The active side of a connection, step by step: greets a server, says something, prints the answer and leaves.
 *
 *   cc -o client client.c -lrdmacm -libverbs
 *   nonic run -- ./client 127.0.0.1 7471 hello ["a question"]
 */
#include "common.h"

#include <netdb.h>

/* No step may take longer. Resolving asks the kernel's tables here, so it does not take long at all. */
enum { PATIENCE_MS = 2000 };

/* Steps 2 and 3: where the server is, and how to get there. */
static void resolved(struct rdma_event_channel *channel, struct rdma_cm_id *id, const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *address;

	must(!getaddrinfo(host, port, &hints, &address), "getaddrinfo");
	/*
	 * Finds the device and the address of ours that lead there, as the routing table has it; NULL leaves that choice to
	 * it. From the event on, id->verbs is the device. RDMA_CM_EVENT_ADDR_ERROR would mean: no device leads there.
	 */
	must(!rdma_resolve_addr(id, NULL, address->ai_addr, PATIENCE_MS), "rdma_resolve_addr");
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	/* The path to it: on InfiniBand a question to the subnet manager; on Ethernet known already. */
	must(!rdma_resolve_route(id, PATIENCE_MS), "rdma_resolve_route");
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	freeaddrinfo(address);
}

/* Step 5: asks, and hears the answer. */
static void connected(struct rdma_event_channel *channel, struct rdma_cm_id *id, const char *greeting)
{
	struct rdma_conn_param param = {
		/* At most 56 bytes: the rest of the field says which IP addresses and port this is about. */
		.private_data = greeting,
		.private_data_len = (uint8_t)strlen(greeting),
		/* How many READs and atomics we serve at once, and have under way; the server may lower both. */
		.responder_resources = 1,
		.initiator_depth = 1,
		/* How often a packet is repeated that is not acknowledged, and a send for which no receive is posted. */
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct rdma_cm_event *event;

	must(!rdma_connect(id, &param), "rdma_connect");
	event = next_event(channel);
	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		/* The queue pair is in RTS, and the server has been told so. */
		printf("connected: %s\n", (const char *)event->param.conn.private_data);
		break;
	case RDMA_CM_EVENT_REJECTED:
		/* The status is the reason: 28 if the program refused, 8 if nobody listens at this port. */
		fprintf(stderr, "rejected, reason %d: %s\n", event->status,
			event->status == 28 ? (const char *)event->param.conn.private_data : "nobody listens");
		exit(2);
	default:
		/* RDMA_CM_EVENT_UNREACHABLE: no answer, however often the request was repeated. */
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
		exit(3);
	}
	must(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
}

int main(int count, char **arguments)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct side side;
	const char *words;
	int pending = 2;

	must(count == 4 || count == 5, "client ADDRESS PORT TEXT [GREETING]");
	words = arguments[3];
	must(strlen(words) <= ROOM, "so many words");
	/* Step 1. A channel for events, and an identifier, which is to the connection manager what a socket is to TCP. */
	must(!!(channel = rdma_create_event_channel()), "rdma_create_event_channel");
	must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	resolved(channel, id, arguments[1], arguments[2]);
	/* Step 4. The queue pair, which the request must name; and the receive before the server can answer. */
	make(&side, id);
	post_receive(&side, id);
	connected(channel, id, count == 5 ? arguments[4] : GREETING);

	/* Step 6. The connection is a queue pair like any other. The two completions may come in either order. */
	memcpy(side.sent, words, strlen(words));
	post_send(&side, id, strlen(words));
	while (pending--) {
		struct ibv_wc done = completion(&side);

		if (done.wr_id == RECEIVED)
			printf("%.*s\n", (int)done.byte_len, side.received);
	}

	/* Step 7. Goodbye: the server is told, and answers. What is still posted is flushed, in error. */
	must(!rdma_disconnect(id), "rdma_disconnect");
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	take_apart(&side, id);
	must(!rdma_destroy_id(id), "rdma_destroy_id");
	rdma_destroy_event_channel(channel);
	return 0;
}
