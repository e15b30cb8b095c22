/*
 * A librdmacm.so.1 without RDMA: rsockets that are TCP sockets 10000 ports further up. With it the preload library can be
 * judged alone, and whoever looks at the ports sees whether a socket was carried.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SHIFT = 10000 };

/* The port is at the same place for IPv4 and IPv6. Port 0 stays: the kernel chooses. */
static struct sockaddr *moved(struct sockaddr_storage *to, const struct sockaddr *from, socklen_t length, int by)
{
	struct sockaddr_in *in = (struct sockaddr_in *)to;

	memset(to, 0, sizeof *to);
	memcpy(to, from, length < sizeof *to ? length : sizeof *to);
	if (in->sin_port)
		in->sin_port = htons((uint16_t)(ntohs(in->sin_port) + by));
	return (struct sockaddr *)to;
}

static void moved_back(struct sockaddr *address, const socklen_t *length)
{
	struct sockaddr_in *in = (struct sockaddr_in *)address;

	if (address && *length >= sizeof *in && in->sin_port)
		in->sin_port = htons((uint16_t)(ntohs(in->sin_port) - SHIFT));
}

int rsocket(int domain, int type, int protocol)
{
	/* Like the real ones, which know no flags here. */
	if (type != SOCK_STREAM && type != SOCK_DGRAM) {
		errno = ENOTSUP;
		return -1;
	}
	return socket(domain, type, protocol);
}

/* A socket for the library's own use, opened while the program calls none of these functions. */
int fake_open_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	/* Something after the call: it must return to here. */
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

int rbind(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_storage to;

	return bind(fd, moved(&to, address, length, SHIFT), length);
}

int rconnect(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_storage to;

	return connect(fd, moved(&to, address, length, SHIFT), length);
}

int raccept(int fd, struct sockaddr *address, socklen_t *length)
{
	return accept(fd, address, length);
}

int rgetsockname(int fd, struct sockaddr *address, socklen_t *length)
{
	int answer = getsockname(fd, address, length);

	if (!answer)
		moved_back(address, length);
	return answer;
}

int rgetpeername(int fd, struct sockaddr *address, socklen_t *length)
{
	int answer = getpeername(fd, address, length);

	if (!answer)
		moved_back(address, length);
	return answer;
}

int rfcntl(int fd, int command, ...)
{
	va_list arguments;
	long argument;

	va_start(arguments, command);
	argument = va_arg(arguments, long);
	va_end(arguments);
	return fcntl(fd, command, argument);
}

int rlisten(int fd, int backlog) { return listen(fd, backlog); }
int rshutdown(int fd, int how) { return shutdown(fd, how); }
int rclose(int fd) { return close(fd); }
ssize_t rrecv(int fd, void *buffer, size_t length, int flags) { return recv(fd, buffer, length, flags); }
ssize_t rrecvfrom(int fd, void *buffer, size_t length, int flags, struct sockaddr *from, socklen_t *from_length)
{
	return recvfrom(fd, buffer, length, flags, from, from_length);
}
ssize_t rrecvmsg(int fd, struct msghdr *message, int flags) { return recvmsg(fd, message, flags); }
/* As rsockets: no signal. */
ssize_t rsend(int fd, const void *buffer, size_t length, int flags)
{
	return send(fd, buffer, length, flags | MSG_NOSIGNAL);
}
ssize_t rsendto(int fd, const void *buffer, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
	struct sockaddr_storage at;

	return sendto(fd, buffer, length, flags | MSG_NOSIGNAL, to ? moved(&at, to, to_length, SHIFT) : NULL, to_length);
}
ssize_t rsendmsg(int fd, const struct msghdr *message, int flags) { return sendmsg(fd, message, flags | MSG_NOSIGNAL); }
ssize_t rreadv(int fd, const struct iovec *pieces, int count) { return readv(fd, pieces, count); }
ssize_t rwritev(int fd, const struct iovec *pieces, int count) { return writev(fd, pieces, count); }
int rpoll(struct pollfd *fds, nfds_t count, int timeout) { return poll(fds, count, timeout); }
int rsetsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	return setsockopt(fd, level, name, value, length);
}
int rgetsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	return getsockopt(fd, level, name, value, length);
}
