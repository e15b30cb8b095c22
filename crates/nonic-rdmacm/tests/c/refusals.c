/*
 * Calls that are refused, at least one of every function that can refuse. Before each, a line on standard error says which function it is
 * and a word of what the log must say (refusals.rs compares).
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>

#include "../../../nonic-verbs/tests/c/need.h"

static int refusals;

static void announce(const char *function, const char *words)
{
	refusals++;
	fprintf(stderr, "case %s|%s\n", function, words);
}

#define CODE(function, words, call) (announce(function, words), ({ NEED((long)(call) != 0); }))
#define NOTHING(function, words, call) (announce(function, words), ({ NEED((call) == NULL); }))

static struct sockaddr_in here = { .sin_family = AF_INET };
static struct sockaddr_in nowhere = { .sin_family = AF_INET };
static struct sockaddr_storage strange = { .ss_family = AF_UNIX };

static struct rdma_cm_id *new_id(enum rdma_port_space ps)
{
	struct rdma_cm_id *id;
	NEED(rdma_create_id(NULL, &id, NULL, ps) == 0);
	return id;
}

static void identifiers(void)
{
	struct rdma_cm_id *id = new_id(RDMA_PS_TCP), *bound = new_id(RDMA_PS_TCP), *other;
	struct rdma_conn_param param = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct rdma_addrinfo *found;
	struct ibv_ece ece = { 0 };
	int mask, one = 1;

	CODE("rdma_create_id", "ps 0x7777", rdma_create_id(NULL, &other, NULL, 0x7777));
	CODE("rdma_destroy_id", "id is NULL", rdma_destroy_id(NULL));
	CODE("rdma_migrate_id", "id is NULL", rdma_migrate_id(NULL, NULL));
	CODE("rdma_bind_addr", "no device has the address", rdma_bind_addr(id, (struct sockaddr *)&nowhere));
	CODE("rdma_bind_addr", "AF_INET", rdma_bind_addr(id, (struct sockaddr *)&strange));
	CODE("rdma_resolve_addr", "address is NULL", rdma_resolve_addr(id, NULL, NULL, 1000));
	CODE("rdma_resolve_addr", "no device has the address",
	     rdma_resolve_addr(id, (struct sockaddr *)&nowhere, (struct sockaddr *)&here, 1000));
	CODE("rdma_resolve_route", "no device yet", rdma_resolve_route(id, 1000));
	CODE("rdma_connect", "no device yet", rdma_connect(id, &param));
	CODE("rdma_accept", "no device yet", rdma_accept(id, &param));
	CODE("rdma_reject", "no device yet", rdma_reject(id, NULL, 0));
	CODE("rdma_disconnect", "no device yet", rdma_disconnect(id));
	CODE("rdma_establish", "no device yet", rdma_establish(id));
	CODE("rdma_notify", "event 99", rdma_notify(id, 99));
	CODE("rdma_set_option", "optlen is 4", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, sizeof(one)));
	CODE("rdma_set_option", "InfiniBand", rdma_set_option(id, RDMA_OPTION_IB, 1, &one, sizeof(one)));
	CODE("rdma_set_local_ece", "vendors", rdma_set_local_ece(id, &ece));
	CODE("rdma_get_remote_ece", "ece is NULL", rdma_get_remote_ece(id, NULL));
	CODE("rdma_init_qp_attr", "qp_attr_mask is NULL", rdma_init_qp_attr(id, &attr, NULL));
	NEED(rdma_bind_addr(bound, (struct sockaddr *)&here) == 0);
	CODE("rdma_bind_addr", "bound already", rdma_bind_addr(bound, (struct sockaddr *)&here));
	CODE("rdma_init_qp_attr", "not one that a connection passes", rdma_init_qp_attr(bound, &attr, &mask));
	CODE("rdma_getaddrinfo", "res is NULL", rdma_getaddrinfo("127.0.0.1", NULL, NULL, NULL));
	CODE("rdma_create_ep", "res is NULL", rdma_create_ep(&other, NULL, NULL, NULL));
	CODE("rdma_get_request", "id is NULL", rdma_get_request(bound, NULL));
	CODE("rdma_get_cm_event", "event is NULL", rdma_get_cm_event(NULL, NULL));
	CODE("rdma_ack_cm_event", "event is NULL", rdma_ack_cm_event(NULL));
	(void)found;
	NEED(rdma_destroy_id(id) == 0 && rdma_destroy_id(bound) == 0);
}

static void queues(void)
{
	struct rdma_cm_id *id = new_id(RDMA_PS_TCP), *listener = new_id(RDMA_PS_TCP), *second = new_id(RDMA_PS_TCP);
	struct ibv_qp_init_attr deep = { .cap = { .max_send_wr = 1 << 30 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1 } };
	struct ibv_srq_init_attr_ex srq_ex = { .comp_mask = 0 };

	CODE("rdma_create_qp", "no device yet", rdma_create_qp(id, NULL, &deep));
	CODE("rdma_create_qp_ex", "no device yet", rdma_create_qp_ex(id, &ex));
	CODE("rdma_create_srq", "no device yet", rdma_create_srq(id, NULL, &srq));
	CODE("rdma_create_srq_ex", "no device yet", rdma_create_srq_ex(id, &srq_ex));
	/* The verb below tells what it refuses. */
	NEED(rdma_bind_addr(id, (struct sockaddr *)&here) == 0);
	NEED(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0 && rdma_listen(listener, 1) == 0);
	struct sockaddr_in taken = here;
	taken.sin_port = rdma_get_src_port(listener);
	CODE("rdma_bind_addr", "claiming port", rdma_bind_addr(second, (struct sockaddr *)&taken));
	CODE("rdma_listen", "listens already", rdma_listen(listener, 1));
	NEED(rdma_destroy_id(id) == 0 && rdma_destroy_id(listener) == 0 && rdma_destroy_id(second) == 0);
}

static void groups(void)
{
	struct rdma_cm_id *id = new_id(RDMA_PS_UDP);
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = 0 };

	NEED(rdma_bind_addr(id, (struct sockaddr *)&here) == 0);
	struct rdma_cm_id *unbound = new_id(RDMA_PS_UDP);
	CODE("rdma_join_multicast", "no device yet", rdma_join_multicast(unbound, (struct sockaddr *)&here, NULL));
	CODE("rdma_join_multicast_ex", "RDMA_CM_JOIN_MC_ATTR_ADDRESS", rdma_join_multicast_ex(id, &attr, NULL));
	CODE("rdma_leave_multicast", "not in the group", rdma_leave_multicast(id, (struct sockaddr *)&here));
	NEED(rdma_destroy_id(id) == 0 && rdma_destroy_id(unbound) == 0);
}

static void sockets(void)
{
	char byte = 0;
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	struct sockaddr_in name;
	socklen_t length = sizeof(name);
	fd_set set;
	int stream = rsocket(AF_INET, SOCK_STREAM, 0), datagram = rsocket(AF_INET, SOCK_DGRAM, 0), value = 1;

	NEED(stream >= 0 && datagram >= 0);
	FD_ZERO(&set);
	CODE("rsocket", "domain 1", rsocket(AF_UNIX, SOCK_STREAM, 0));
	CODE("rsocket", "type 0x3", rsocket(AF_INET, SOCK_RAW, 0));
	CODE("rbind", "no rsocket", rbind(-1, (struct sockaddr *)&here, sizeof(here)));
	CODE("rbind", "no device has the address", rbind(stream, (struct sockaddr *)&nowhere, sizeof(nowhere)));
	CODE("rlisten", "a datagram socket", rlisten(datagram, 1));
	CODE("raccept", "does not listen", raccept(stream, NULL, NULL));
	CODE("rconnect", "address is NULL", rconnect(stream, NULL, 0));
	CODE("rshutdown", "not connected", rshutdown(stream, SHUT_RDWR));
	CODE("rshutdown", "how is 9", rshutdown(stream, 9));
	CODE("rclose", "no rsocket", rclose(-1));
	CODE("rrecv", "not connected", rrecv(stream, &byte, 1, 0));
	CODE("rrecvfrom", "no rsocket", rrecvfrom(-1, &byte, 1, 0, NULL, NULL));
	CODE("rreadv", "iov is NULL", rreadv(stream, NULL, 1));
	CODE("rrecvmsg", "msg is NULL", rrecvmsg(stream, NULL, 0));
	CODE("rsend", "not connected", rsend(stream, &byte, 1, 0));
	CODE("rsend", "no destination", rsend(datagram, &byte, 1, 0));
	CODE("rsendto", "a destination was named", rsendto(stream, &byte, 1, 0, (struct sockaddr *)&here, sizeof(here)));
	CODE("rwritev", "iov is NULL", rwritev(stream, NULL, 1));
	message.msg_control = &byte;
	message.msg_controllen = 1;
	CODE("rsendmsg", "control data", rsendmsg(stream, &message, 0));
	CODE("rselect", "nfds is -1", rselect(-1, &set, NULL, NULL, NULL));
	CODE("rgetpeername", "not connected", rgetpeername(stream, (struct sockaddr *)&name, &length));
	CODE("rgetsockname", "addr or addrlen", rgetsockname(stream, NULL, NULL));
	CODE("rsetsockopt", "is not offered", rsetsockopt(stream, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	CODE("rsetsockopt", "optval is NULL", rsetsockopt(stream, SOL_SOCKET, SO_KEEPALIVE, NULL, 0));
	CODE("rgetsockopt", "is not offered", rgetsockopt(stream, SOL_SOCKET, SO_BINDTODEVICE, &value, &length));
	CODE("rfcntl", "command", rfcntl(stream, F_GETOWN));
	CODE("riomap", "not connected", riomap(stream, &byte, 1, PROT_WRITE, 0, -1) == -1);
	CODE("riounmap", "not connected", riounmap(stream, &byte, 1));
	CODE("riowrite", "not connected", riowrite(stream, &byte, 1, 0, 0) == (size_t)-1);
	NEED(rclose(stream) == 0 && rclose(datagram) == 0);
}

int main(void)
{
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	/* An address for documentation, which no host has. */
	nowhere.sin_addr.s_addr = inet_addr("192.0.2.1");
	identifiers();
	queues();
	groups();
	sockets();
	announce("end", "");
	printf("%d refusals\n", refusals - 1);
	return 0;
}
