/*
 * hello: a small app for nibrunner. It serves one page that counts its visits, in a file on its volume and in memory.
 *
 * What it relies on is what every app is given: PORT to listen on, NIBRUN_HOSTNAME to know its name, and a
 * working directory that lasts. It runs as a user without rights, so it needs nothing else.
 *
 *     musl-gcc -static -Os -Wall -Wextra -o hello hello.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const STYLE =
    "body{font:18px/1.6 system-ui,sans-serif;max-width:34em;margin:12vh auto;padding:0 1em;color:#223}"
    "h1{font-size:2.4em;margin:0}b{color:#0a7}"
    "@media(prefers-color-scheme:dark){body{background:#112;color:#dde}}";

/* One more visit: read, add and write under a lock, since each request has a process of its own. */
static long count_visit(void) {
  int file = open("visits", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || flock(file, LOCK_EX) != 0) return -1;
  char text[32] = "";
  if (pread(file, text, sizeof text - 1, 0) < 0) return -1;
  long visits = strtol(text, NULL, 10) + 1;
  int length = snprintf(text, sizeof text, "%ld\n", visits);
  if (pwrite(file, text, length, 0) != length || fsync(file) != 0) return -1;
  close(file);
  return visits;
}

/* Visits since the program started: in memory that the processes of all requests share. */
static atomic_long *since_start;

static void send_all(int client, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t sent = write(client, bytes, length);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    bytes += sent;
    length -= (size_t)sent;
  }
}

__attribute__((format(printf, 4, 5))) static void answer(int client, const char *status, const char *type,
                                                         const char *format, ...) {
  char body[4096], head[256];
  va_list values;
  va_start(values, format);
  int body_length = vsnprintf(body, sizeof body, format, values);
  va_end(values);
  int head_length = snprintf(head, sizeof head,
                             "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %d\r\n"
                             "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
                             status, type, body_length);
  send_all(client, head, (size_t)head_length);
  send_all(client, body, (size_t)body_length);
}

static void serve_page(int client) {
  long visits = count_visit();
  if (visits < 0) {
    perror("visits");
    answer(client, "500 Internal Server Error", "text/plain", "The visit could not be counted.\n");
    return;
  }
  const char *hostname = getenv("NIBRUN_HOSTNAME");
  struct utsname machine;
  struct sysinfo system;
  uname(&machine);
  sysinfo(&system);
  answer(client, "200 OK", "text/html",
         "<!doctype html>\n<html lang=\"en\">\n<title>Hello</title>\n"
         "<meta name=\"viewport\" content=\"width=device-width\">\n<style>%s</style>\n"
         "<h1>Hello.</h1>\n"
         "<p>This is visit <b>%ld</b> to %.253s, and number <b>%ld</b> since the program started.</p>\n"
         "<p>It comes from a microVM of its own: Linux %s, %lu MiB of memory, up for %ld s.\n"
         "The first count lives on its volume and outlasts it, the second in its memory: it goes on when the app\n"
         "has slept, and begins anew when it boots.</p>\n",
         STYLE, visits, hostname ? hostname : "an app without a name", atomic_fetch_add(since_start, 1) + 1,
         machine.release,
         (system.totalram * system.mem_unit) >> 20, system.uptime);
  printf("visit %ld\n", visits);
}

/* Reads until the head of the request is whole; what is too long or comes too slowly is no request. */
static int read_head(int client, char *head, size_t size) {
  size_t length = 0;
  while (length + 1 < size) {
    ssize_t got = read(client, head + length, size - 1 - length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    length += (size_t)got;
    head[length] = '\0';
    if (strstr(head, "\r\n\r\n")) return 1;
  }
  return 0;
}

static void serve(int client) {
  struct timeval limit = {.tv_sec = 10};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);

  char head[8192];
  if (!read_head(client, head, sizeof head)) return;
  if (strncmp(head, "GET ", 4) != 0) {
    answer(client, "405 Method Not Allowed", "text/plain", "This app answers GET.\n");
  } else if (strncmp(head, "GET /health ", 12) == 0) {
    answer(client, "200 OK", "text/plain", "ok\n");
  } else if (strncmp(head, "GET / ", 6) == 0) {
    serve_page(client);
  } else {
    answer(client, "404 Not Found", "text/plain", "There is only one page here: /\n");
  }
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGCHLD, SIG_IGN); /* the kernel collects the processes of finished requests */
  signal(SIGPIPE, SIG_IGN);

  since_start = mmap(NULL, sizeof *since_start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (since_start == MAP_FAILED) {
    perror("memory");
    return 1;
  }

  const char *port = getenv("PORT");
  struct sockaddr_in address = {
      .sin_family = AF_INET,
      .sin_addr.s_addr = htonl(INADDR_ANY),
      .sin_port = htons((unsigned short)atoi(port ? port : "3000")),
  };
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 128) != 0) {
    perror("listen");
    return 1;
  }
  printf("hello listens on port %d\n", ntohs(address.sin_port));

  for (;;) {
    int client = accept(listener, NULL, NULL);
    if (client < 0) continue;
    if (fork() == 0) {
      close(listener);
      serve(client);
      _exit(0);
    }
    close(client);
  }
}
