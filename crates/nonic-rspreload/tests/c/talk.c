/*
 * Two sides of one conversation.
 *
 *   talk serve ADDRESS PORT                          says back what one client says, until it stops
 *   talk serve ADDRESS PORT library                  the same on a socket that librdmacm opens for itself
 *   talk ask ADDRESS PORT blocking|patient TEXT      says something and prints the answer; "patient" does not block
 *
 * Neither closes anything: that is what the end of a program is for.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in where;

static void must(int condition, const char *what)
{
	if (condition)
		return;
	perror(what);
	exit(1);
}

static int library_socket(void)
{
	int (*open)(void);

	/* The first socket of the program loads the library. */
	must(socket(AF_INET, SOCK_STREAM, 0) >= 0, "socket");
	*(void **)&open = dlsym(RTLD_DEFAULT, "fake_open_socket");
	must(open != NULL, "fake_open_socket");
	return open();
}

static int serve(int listener)
{
	int one = 1, client;
	char bytes[4096];
	ssize_t count;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	must(!bind(listener, (struct sockaddr *)&where, sizeof where), "bind");
	must(!listen(listener, 1), "listen");
	puts("listening");
	fflush(stdout);
	client = accept(listener, NULL, NULL);
	must(client >= 0, "accept");
	while ((count = read(client, bytes, sizeof bytes)) > 0)
		must(write(client, bytes, (size_t)count) == count, "write");
	must(!count, "read");
	return 0;
}

static int connected(int patient)
{
	int fd = socket(AF_INET, SOCK_STREAM | (patient ? SOCK_NONBLOCK : 0), 0), error = 0;
	socklen_t length = sizeof error;
	struct pollfd made = { .fd = fd, .events = POLLOUT };

	if (!connect(fd, (struct sockaddr *)&where, sizeof where))
		return fd;
	must(patient && errno == EINPROGRESS, "connect");
	must(poll(&made, 1, 20000) == 1, "poll");
	must(!getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), "getsockopt");
	errno = error;
	must(!error, "connect");
	return fd;
}

static int ask(int patient, const char *text)
{
	int fd = connected(patient);
	struct pollfd answered = { .fd = fd, .events = POLLIN };
	char bytes[4096];
	ssize_t count;

	must(send(fd, text, strlen(text), 0) == (ssize_t)strlen(text), "send");
	must(poll(&answered, 1, 20000) == 1, "poll");
	count = recv(fd, bytes, sizeof bytes, 0);
	must(count > 0, "recv");
	printf("%.*s\n", (int)count, bytes);
	return 0;
}

int main(int count, char **arguments)
{
	must(count >= 4, "arguments");
	where.sin_family = AF_INET;
	must(inet_pton(AF_INET, arguments[2], &where.sin_addr) == 1, "address");
	where.sin_port = htons((uint16_t)atoi(arguments[3]));
	if (!strcmp(arguments[1], "serve"))
		return serve(count == 4 ? socket(AF_INET, SOCK_STREAM, 0) : library_socket());
	must(count == 6, "arguments");
	return ask(!strcmp(arguments[4], "patient"), arguments[5]);
}
