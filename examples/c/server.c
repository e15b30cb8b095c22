/*
 * The passive side of a connection, step by step: waits for one client that greets properly, says back what it says, and
 * ends when the client leaves.
 *
 *   cc -o server server.c -lrdmacm -libverbs
 *   nonic run -- ./server 127.0.0.1 7471
 */
#include "common.h"

#include <netdb.h>

/* Steps 1 to 3: a place where clients can find us. */
static struct rdma_cm_id *listening(struct rdma_event_channel *channel, const char *host, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *address;
	struct rdma_cm_id *listener;

	must(!getaddrinfo(host, port, &hints, &address), "getaddrinfo");
	/*
	 * An identifier is to the connection manager what a socket is to TCP. RDMA_PS_TCP says: reliable connections;
	 * their ports have nothing to do with TCP's.
	 */
	must(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	/* The address decides which device we listen on; 0.0.0.0 would be all. Port 0 would be any that is free. */
	must(!rdma_bind_addr(listener, address->ai_addr), "rdma_bind_addr");
	/* So many requests may wait until we take them. A second listener on this port is told EADDRINUSE here. */
	must(!rdma_listen(listener, 8), "rdma_listen");
	freeaddrinfo(address);
	printf("listening on port %d\n", ntohs(rdma_get_src_port(listener)));
	fflush(stdout);
	return listener;
}

/* Step 4: a client that wants something. Others are sent away. */
static struct rdma_cm_id *requested(struct rdma_event_channel *channel)
{
	static const char refusal[] = "greet properly";
	struct rdma_cm_event *event;
	struct rdma_cm_id *client;
	int welcome;

	for (;;) {
		event = next_event(channel);
		must(event->event == RDMA_CM_EVENT_CONNECT_REQUEST, "another event than a request");
		/*
		 * The request brings an identifier of its own, already bound to the device it came through; the
		 * listener goes on listening. What the client wrote into it lives as long as the event. Its length is that
		 * of the field in the message, filled up with zeros: the client's own length is not sent.
		 */
		client = event->id;
		welcome = event->param.conn.private_data_len >= strlen(GREETING) &&
			  !memcmp(event->param.conn.private_data, GREETING, strlen(GREETING));
		must(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
		if (welcome)
			return client;
		/* The client gets RDMA_CM_EVENT_REJECTED with status 28 and these words. */
		must(!rdma_reject(client, refusal, sizeof refusal), "rdma_reject");
		must(!rdma_destroy_id(client), "rdma_destroy_id");
	}
}

/* Step 6: yes. From here on the client may send. */
static void accepted(struct rdma_event_channel *channel, struct rdma_cm_id *client)
{
	struct rdma_conn_param param = {
		/* At most 196 bytes; the client finds them in its event. */
		.private_data = "at your service",
		.private_data_len = sizeof "at your service",
		/* How many READs and atomics of the client we serve at once, and have under way ourselves. */
		.responder_resources = 1,
		.initiator_depth = 1,
		/* How often we repeat a send while the client has no receive posted; 7 is for ever. */
		.rnr_retry_count = 7,
	};

	/* Brings the queue pair to RTS with what the request said of the client's, and answers. */
	must(!rdma_accept(client, &param), "rdma_accept");
	/* The client has got the answer. (Its first message may be here before this event.) */
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
}

int main(int count, char **arguments)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *client;
	struct side side;
	struct ibv_wc done;

	must(count == 3, "server ADDRESS PORT");
	/* Step 1. Everything that happens arrives here; its descriptor (channel->fd) can be polled. */
	must(!!(channel = rdma_create_event_channel()), "rdma_create_event_channel");
	listener = listening(channel, arguments[1], arguments[2]);
	client = requested(channel);
	/* Step 5. The queue pair, and the receive before the client can send: who is late makes it wait and repeat. */
	make(&side, client);
	post_receive(&side, client);
	accepted(channel, client);

	/* Step 7. The connection is a queue pair like any other. */
	done = completion(&side);
	memcpy(side.sent, side.received, done.byte_len);
	post_send(&side, client, done.byte_len);
	done = completion(&side);
	must(done.wr_id == SENT, "another completion than that of the send");

	/* Step 8. The client says that it leaves; our side of the queue pair is put to rest too. */
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	must(!rdma_disconnect(client), "rdma_disconnect");
	take_apart(&side, client);
	must(!rdma_destroy_id(client), "rdma_destroy_id");
	must(!rdma_destroy_id(listener), "rdma_destroy_id");
	rdma_destroy_event_channel(channel);
	return 0;
}
