/*
 * The program that tests run in microVMs: an HTTP server whose every path shows one thing that a test asks about.
 * One thread a connection, keep-alive, no library beyond libc.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define HEAD_MAX 16384
#define TEXT_MAX (256 * 1024)

static atomic_int counter;
static int health_status = 200;
static char *allocated;
static size_t allocated_bytes;
static atomic_int passes;
static pthread_mutex_t allocating = PTHREAD_MUTEX_INITIALIZER;

struct connection {
  int fd;
  char head[HEAD_MAX + 1];
  size_t have; /* bytes in head: a request's head and what came with it */
};

struct request {
  char method[16];
  char path[2048];
  char query[4096];
  char key[64]; /* Sec-WebSocket-Key */
  size_t length; /* of the body */
  int close;
};

static long long milliseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(long ms) {
  struct timespec rest = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&rest, &rest) == -1 && errno == EINTR) {
  }
}

static int write_all(int fd, const void *bytes, size_t size) {
  const char *at = bytes;
  while (size > 0) {
    ssize_t done = write(fd, at, size);
    if (done == -1 && errno == EINTR) continue;
    if (done <= 0) return -1;
    at += done;
    size -= (size_t)done;
  }
  return 0;
}

static int answer_bytes(struct connection *c, const struct request *r, int status, const char *body, size_t size) {
  char head[256];
  int n = snprintf(head, sizeof head,
                   "HTTP/1.1 %d %s\r\ncontent-type: text/plain\r\ncontent-length: %zu\r\nconnection: %s\r\n\r\n",
                   status, status < 400 ? "OK" : "No", size, r->close ? "close" : "keep-alive");
  if (write_all(c->fd, head, (size_t)n) == -1) return -1;
  return strcmp(r->method, "HEAD") == 0 ? 0 : write_all(c->fd, body, size);
}

static int answer(struct connection *c, const struct request *r, int status, const char *format, ...) {
  char body[8192];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(body, sizeof body, format, args);
  va_end(args);
  return answer_bytes(c, r, status, body, n < (int)sizeof body ? (size_t)n : sizeof body - 1);
}

static int hex(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  digit |= 32;
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The value of a name in the query, percent-decoded; 0 when it is not there. */
static int parameter(const struct request *r, const char *name, char *into, size_t size) {
  size_t length = strlen(name);
  for (const char *at = r->query; at != NULL && *at != '\0';) {
    const char *end = strchrnul(at, '&');
    if (strncmp(at, name, length) == 0 && at[length] == '=') {
      size_t n = 0;
      for (const char *from = at + length + 1; from < end && n + 1 < size; from++) {
        if (*from == '%' && end - from > 2 && hex(from[1]) >= 0 && hex(from[2]) >= 0) {
          into[n++] = (char)(hex(from[1]) * 16 + hex(from[2]));
          from += 2;
        } else {
          into[n++] = *from == '+' ? ' ' : *from;
        }
      }
      into[n] = '\0';
      return 1;
    }
    at = *end == '&' ? end + 1 : NULL;
  }
  return 0;
}

static long number(const struct request *r, const char *name, long otherwise) {
  char text[32];
  return parameter(r, name, text, sizeof text) ? strtol(text, NULL, 10) : otherwise;
}

/* ---------------------------------------------------------------------------------------------- what paths do */

static int do_write(struct connection *c, const struct request *r) {
  char path[1024], body[4096];
  if (!parameter(r, "path", path, sizeof path) || !parameter(r, "body", body, sizeof body))
    return answer(c, r, 400, "path and body\n");
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd == -1) return answer(c, r, 500, "%s\n", strerror(errno));
  int failed = write_all(fd, body, strlen(body)) == -1 || fsync(fd) == -1;
  int reason = errno;
  close(fd);
  return failed ? answer(c, r, 500, "%s\n", strerror(reason)) : answer(c, r, 200, "written\n");
}

static int do_read(struct connection *c, const struct request *r) {
  char path[1024];
  if (!parameter(r, "path", path, sizeof path)) return answer(c, r, 400, "path\n");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd == -1) return answer(c, r, 404, "%s\n", strerror(errno));
  char *text = malloc(TEXT_MAX);
  ssize_t n = text == NULL ? -1 : read(fd, text, TEXT_MAX);
  close(fd);
  int result = n < 0 ? answer(c, r, 500, "%s\n", strerror(errno)) : answer_bytes(c, r, 200, text, (size_t)n);
  free(text);
  return result;
}

static int do_log(struct connection *c, const struct request *r) {
  long lines = number(r, "lines", 1);
  char line[32];
  for (long i = 1; i <= lines; i++) {
    int n = snprintf(line, sizeof line, "line %ld\n", i);
    write_all(STDOUT_FILENO, line, (size_t)n);
  }
  return answer(c, r, 200, "%ld\n", lines);
}

static int do_env(struct connection *c, const struct request *r) {
  char name[256];
  if (parameter(r, "name", name, sizeof name)) {
    const char *value = getenv(name);
    return value == NULL ? answer(c, r, 404, "not set\n") : answer_bytes(c, r, 200, value, strlen(value));
  }
  char *all = malloc(TEXT_MAX);
  size_t n = 0;
  for (char **each = environ; all != NULL && *each != NULL; each++)
    if (n + strlen(*each) + 2 < TEXT_MAX) n += (size_t)snprintf(all + n, TEXT_MAX - n, "%s\n", *each);
  int result = answer_bytes(c, r, all == NULL ? 500 : 200, all == NULL ? "" : all, n);
  free(all);
  return result;
}

static int do_whoami(struct connection *c, const struct request *r) {
  char cwd[1024] = "?", line[256], caps[256] = "";
  if (getcwd(cwd, sizeof cwd) == NULL) cwd[0] = '?';
  FILE *status = fopen("/proc/self/status", "re");
  while (status != NULL && fgets(line, sizeof line, status) != NULL)
    if (strncmp(line, "Cap", 3) == 0 || strncmp(line, "NoNewPrivs", 10) == 0 || strncmp(line, "Groups", 6) == 0)
      strncat(caps, line, sizeof caps - strlen(caps) - 1);
  if (status != NULL) fclose(status);
  return answer(c, r, 200, "uid %d\ngid %d\npid %d\nppid %d\ncwd %s\n%s", getuid(), getgid(), getpid(), getppid(), cwd, caps);
}

/* `1.2.3.4:80` or `[::1]:80`. */
static int address(char *text, struct sockaddr_storage *to, socklen_t *size) {
  struct sockaddr_in *v4 = (struct sockaddr_in *)to;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;
  char *colon = strrchr(text, ':');
  if (colon == NULL) return -1;
  uint16_t port = htons((uint16_t)strtol(colon + 1, NULL, 10));
  memset(to, 0, sizeof *to);
  *colon = '\0';
  if (colon > text && text[0] == '[' && colon[-1] == ']') {
    colon[-1] = '\0';
    *size = sizeof *v6;
    *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
    return inet_pton(AF_INET6, text + 1, &v6->sin6_addr) == 1 ? 0 : -1;
  }
  *size = sizeof *v4;
  *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
  return inet_pton(AF_INET, text, &v4->sin_addr) == 1 ? 0 : -1;
}

static int do_reach(struct connection *c, const struct request *r) {
  char text[128];
  struct sockaddr_storage to;
  socklen_t length;
  if (!parameter(r, "addr", text, sizeof text) || address(text, &to, &length) == -1)
    return answer(c, r, 400, "addr\n");
  int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  long long began = milliseconds(CLOCK_MONOTONIC);
  int error = connect(fd, (struct sockaddr *)&to, length) == -1 ? errno : 0;
  if (error == EINPROGRESS) {
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t size = sizeof error;
    if (poll(&wait, 1, 2000) == 0) error = ETIMEDOUT;
    else getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  close(fd);
  long long took = milliseconds(CLOCK_MONOTONIC) - began;
  return error == 0 ? answer(c, r, 200, "reached in %lldms\n", took)
                    : answer(c, r, 200, "blocked (%s) in %lldms\n", strerror(error), took);
}

static int do_allocate(struct connection *c, const struct request *r) {
  pthread_mutex_lock(&allocating);
  free(allocated);
  allocated_bytes = (size_t)number(r, "mib", 1) << 20;
  allocated = malloc(allocated_bytes);
  int failed = allocated == NULL;
  if (!failed) memset(allocated, 0x5a, allocated_bytes);
  pthread_mutex_unlock(&allocating);
  return failed ? answer(c, r, 500, "no memory\n") : answer(c, r, 200, "%zu\n", allocated_bytes);
}

/* Touches all of it again: what it still holds, and how often it was asked. */
static int do_allocated(struct connection *c, const struct request *r) {
  pthread_mutex_lock(&allocating);
  size_t whole = 0;
  for (size_t at = 0; at < allocated_bytes; at += 4096) {
    whole += allocated[at] == 0x5a;
    allocated[at] = 0x5a;
  }
  size_t pages = (allocated_bytes + 4095) / 4096, bytes = allocated_bytes;
  pthread_mutex_unlock(&allocating);
  if (whole != pages) return answer(c, r, 500, "%zu of %zu pages are whole\n", whole, pages);
  return answer(c, r, 200, "%zu:%d\n", bytes, ++passes);
}

static void *burn(void *until) {
  volatile unsigned long work = 0;
  while (milliseconds(CLOCK_MONOTONIC) < *(long long *)until) work++;
  return NULL;
}

static int do_burn(struct connection *c, const struct request *r) {
  long threads = number(r, "threads", 1);
  long long until = milliseconds(CLOCK_MONOTONIC) + number(r, "ms", 100);
  pthread_t ids[64];
  if (threads < 1 || threads > 64) return answer(c, r, 400, "threads\n");
  for (long i = 0; i < threads; i++) pthread_create(&ids[i], NULL, burn, &until);
  for (long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  return answer(c, r, 200, "burnt\n");
}

/* `pieces` chunks, `ms` apart. */
static int do_stream(struct connection *c, const struct request *r) {
  static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
  char chunk[64], piece[32];
  if (write_all(c->fd, head, sizeof head - 1) == -1) return -1;
  for (long i = 1, pieces = number(r, "pieces", 3); i <= pieces; i++) {
    int size = snprintf(piece, sizeof piece, "piece %ld\n", i);
    int n = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n", size, piece);
    if (write_all(c->fd, chunk, (size_t)n) == -1) return -1;
    pause_ms(number(r, "ms", 10));
  }
  return write_all(c->fd, "0\r\n\r\n", 5);
}

static int do_echo(struct connection *c, const struct request *r, const char *body) {
  return answer_bytes(c, r, 200, body, r->length);
}

/* --------------------------------------------------------------------------------------------------- WebSocket */

static uint32_t rotate(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

/* SHA-1 (FIPS 180-4) of at most 119 bytes, which is what a handshake asks for. */
static void sha1(const char *text, size_t size, unsigned char digest[20]) {
  unsigned char message[128] = {0};
  uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}, w[80];
  size_t padded = size + 9 <= 64 ? 64 : 128;
  memcpy(message, text, size);
  message[size] = 0x80;
  message[padded - 2] = (unsigned char)(size * 8 >> 8);
  message[padded - 1] = (unsigned char)(size * 8);
  for (const unsigned char *block = message; block < message + padded; block += 64) {
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int t = 0; t < 80; t++) {
      const unsigned char *at = block + 4 * t;
      w[t] = t < 16 ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]
                    : rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
      uint32_t mixed = t < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                       : t < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                       : t < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                                : (b ^ c ^ d) + 0xca62c1d6;
      uint32_t next = rotate(a, 5) + mixed + e + w[t];
      e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
  }
  for (int i = 0; i < 20; i++) digest[i] = (unsigned char)(h[i / 4] >> (24 - i % 4 * 8));
}

/* What the client's key is to be answered with: base64, 28 characters. */
static void accept_key(const char *key, char into[29]) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  unsigned char digest[21] = {0};
  char text[120];
  int n = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
  sha1(text, (size_t)n, digest);
  for (int i = 0; i < 28; i += 4) {
    const unsigned char *at = digest + i / 4 * 3;
    uint32_t three = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
    for (int j = 0; j < 4; j++) into[i + j] = digits[three >> (18 - 6 * j) & 63];
  }
  into[27] = '=';
  into[28] = '\0';
}

/* The next bytes of the connection, those first that came with the request. */
static int read_exactly(struct connection *c, void *into, size_t size) {
  size_t have = c->have < size ? c->have : size;
  memcpy(into, c->head, have);
  memmove(c->head, c->head + have, c->have - have);
  c->have -= have;
  while (have < size) {
    ssize_t n = read(c->fd, (char *)into + have, size - have);
    if (n == -1 && errno == EINTR) continue;
    if (n <= 0) return -1;
    have += (size_t)n;
  }
  return 0;
}

/* RFC 6455: each frame of up to 65535 bytes comes back as it was, a ping as a pong, until one of them closes. */
static int do_websocket(struct connection *c, const struct request *r) {
  char accepted[29], head[256];
  if (r->key[0] == '\0') return answer(c, r, 400, "no Sec-WebSocket-Key\n");
  accept_key(r->key, accepted);
  int n = snprintf(head, sizeof head,
                   "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                   "sec-websocket-accept: %s\r\n\r\n",
                   accepted);
  unsigned char *frame = malloc(4 + 65535);
  int going = frame != NULL && write_all(c->fd, head, (size_t)n) == 0;
  while (going) {
    unsigned char start[2], extended[2], mask[4];
    if (read_exactly(c, start, 2) == -1) break;
    size_t size = start[1] & 127;
    if (size == 127 || (start[1] & 128) == 0) break;
    if (size == 126) {
      if (read_exactly(c, extended, 2) == -1) break;
      size = (size_t)extended[0] << 8 | extended[1];
    }
    if (read_exactly(c, mask, 4) == -1) break;
    size_t before = size < 126 ? 2 : 4;
    if (read_exactly(c, frame + before, size) == -1) break;
    for (size_t i = 0; i < size; i++) frame[before + i] ^= mask[i % 4];
    int opcode = start[0] & 15;
    frame[0] = opcode == 9 ? 0x8a : start[0];
    frame[1] = (unsigned char)(size < 126 ? size : 126);
    if (size >= 126) frame[2] = (unsigned char)(size >> 8), frame[3] = (unsigned char)size;
    going = write_all(c->fd, frame, before + size) == 0 && opcode != 8;
  }
  free(frame);
  return -1;
}

/* Requests that wait in /hang. */
static _Atomic int hanging;

static int serve(struct connection *c, const struct request *r, const char *body) {
#define IS(text) (strcmp(r->path, text) == 0)
  if (IS("/")) return answer(c, r, 200, "ok\n");
  if (IS("/healthz")) return answer(c, r, health_status, "%d\n", health_status);
  if (IS("/remember")) return answer(c, r, 200, "%d\n", ++counter);
  if (IS("/write")) return do_write(c, r);
  if (IS("/read")) return do_read(c, r);
  if (IS("/exit")) _exit((int)number(r, "code", 0));
  if (IS("/kill")) return raise((int)number(r, "signal", SIGKILL));
  if (IS("/hang")) {
    hanging++;
    pause_ms(number(r, "ms", 1000));
    hanging--;
    return answer(c, r, 200, "waited\n");
  }
  if (IS("/hanging")) return answer(c, r, 200, "%d\n", hanging);
  if (IS("/log")) return do_log(c, r);
  if (IS("/env")) return do_env(c, r);
  if (IS("/time")) return answer(c, r, 200, "%lld\n", milliseconds(CLOCK_REALTIME));
  if (IS("/whoami")) return do_whoami(c, r);
  if (IS("/reach")) return do_reach(c, r);
  if (IS("/allocate")) return do_allocate(c, r);
  if (IS("/allocated")) return do_allocated(c, r);
  if (IS("/burn")) return do_burn(c, r);
  if (IS("/stream")) return do_stream(c, r);
  if (IS("/echo")) return do_echo(c, r, body);
  if (IS("/websocket")) return do_websocket(c, r);
  return answer(c, r, 404, "no such path\n");
}

/* -------------------------------------------------------------------------------------------------- connections */

static int parse(char *head, struct request *r) {
  char target[sizeof r->path + sizeof r->query];
  int minor;
  memset(r, 0, sizeof *r);
  if (sscanf(head, "%15s %6143s HTTP/1.%d", r->method, target, &minor) != 3) return -1;
  char *mark = strchr(target, '?');
  if (mark != NULL) {
    *mark = '\0';
    snprintf(r->query, sizeof r->query, "%s", mark + 1);
  }
  snprintf(r->path, sizeof r->path, "%.2047s", target);
  r->close = minor == 0;
  for (char *line = strstr(head, "\r\n"); line != NULL && line[2] != '\r'; line = strstr(line + 2, "\r\n")) {
    if (strncasecmp(line + 2, "content-length:", 15) == 0) r->length = strtoul(line + 17, NULL, 10);
    if (strncasecmp(line + 2, "connection: close", 17) == 0) r->close = 1;
    if (strncasecmp(line + 2, "sec-websocket-key:", 18) == 0) sscanf(line + 20, " %63[^\r]", r->key);
  }
  return 0;
}

/* One request; 0 when the connection goes on. */
static int next_request(struct connection *c) {
  char *end;
  while (c->head[c->have] = '\0', (end = strstr(c->head, "\r\n\r\n")) == NULL) {
    if (c->have == HEAD_MAX) return -1;
    ssize_t n = read(c->fd, c->head + c->have, HEAD_MAX - c->have);
    if (n <= 0) return -1;
    c->have += (size_t)n;
  }
  struct request r;
  end[2] = '\0';
  if (parse(c->head, &r) == -1) return -1;
  size_t size = (size_t)(end + 4 - c->head), came = c->have - size;
  if (r.length > TEXT_MAX) return -1;
  char *body = malloc(r.length + 1);
  size_t have = came < r.length ? came : r.length;
  if (body == NULL) return -1;
  memcpy(body, c->head + size, have);
  memmove(c->head, c->head + size + have, came - have);
  c->have = came - have;
  while (have < r.length) {
    ssize_t n = read(c->fd, body + have, r.length - have);
    if (n <= 0) break;
    have += (size_t)n;
  }
  int failed = have < r.length || serve(c, &r, body) != 0 || r.close;
  free(body);
  return failed ? -1 : 0;
}

static void *converse(void *connection) {
  struct connection *c = connection;
  while (next_request(c) == 0) {
  }
  close(c->fd);
  free(c);
  return NULL;
}

static int listen_on(int type, int port) {
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, (struct sockaddr *)&any, sizeof any) == -1 || (type == SOCK_STREAM && listen(fd, 512) == -1)) {
    perror("listen");
    exit(1);
  }
  return fd;
}

static void *raw_tcp_connection(void *descriptor) {
  int fd = (int)(long)descriptor;
  char bytes[4096];
  ssize_t n;
  while ((n = read(fd, bytes, sizeof bytes)) > 0 && write_all(fd, bytes, (size_t)n) == 0) {
  }
  close(fd);
  return NULL;
}

static void *raw_tcp(void *port) {
  int server = listen_on(SOCK_STREAM, (int)(long)port);
  for (;;) {
    int fd = accept(server, NULL, NULL);
    pthread_t id;
    if (fd >= 0 && pthread_create(&id, NULL, raw_tcp_connection, (void *)(long)fd) == 0) pthread_detach(id);
  }
  return NULL;
}

static void *raw_udp(void *port) {
  int fd = listen_on(SOCK_DGRAM, (int)(long)port);
  static char bytes[65536];
  for (;;) {
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    ssize_t n = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size);
    if (n >= 0) sendto(fd, bytes, (size_t)n, 0, (struct sockaddr *)&from, size);
  }
  return NULL;
}

static void background(void *(*run)(void *), const char *port) {
  pthread_t id;
  pthread_create(&id, NULL, run, (void *)strtol(port, NULL, 10));
}

int main(int count, char **args) {
  int listening = 1;
  long after = 0;
  setvbuf(stdout, NULL, _IONBF, 0);
  signal(SIGPIPE, SIG_IGN);
  for (int i = 1; i < count; i++) {
    const char *value = i + 1 < count ? args[i + 1] : "";
#define FLAG(text) (strcmp(args[i], text) == 0)
    if (FLAG("--never-listen")) listening = 0;
    else if (FLAG("--listen-after")) after = strtol(value, NULL, 10), i++;
    else if (FLAG("--http-status")) health_status = (int)strtol(value, NULL, 10), i++;
    else if (FLAG("--ignore-term")) signal(SIGTERM, SIG_IGN);
    else if (FLAG("--raw-tcp")) background(raw_tcp, value), i++;
    else if (FLAG("--raw-udp")) background(raw_udp, value), i++;
    else if (FLAG("--exit")) return (int)strtol(value, NULL, 10);
    else {
      fprintf(stderr, "unknown flag %s\n", args[i]);
      return 2;
    }
  }
  while (!listening) pause();
  pause_ms(after);
  const char *port = getenv("PORT");
  int server = listen_on(SOCK_STREAM, port == NULL ? 3000 : atoi(port));
  printf("listening\n");
  for (;;) {
    struct connection *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    c->fd = accept(server, NULL, NULL);
    c->have = 0;
    int yes = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    pthread_t id;
    if (c->fd < 0 || pthread_create(&id, NULL, converse, c) != 0) {
      if (c->fd >= 0) close(c->fd);
      free(c);
    } else {
      pthread_detach(id);
    }
  }
}
