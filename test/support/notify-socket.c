/* What systemd is to a service: prints the datagrams of a notification socket, each with the process that sent it.
 * Ends after the first that asks whether all was read. Usage: notify-socket NAME, with @ in front of an abstract one. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char **words) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int one = 1, listener = socket(AF_UNIX, SOCK_DGRAM, 0);
  if (count != 2 || strlen(words[1]) >= sizeof address.sun_path) return 2;
  strcpy(address.sun_path, words[1]);
  if (words[1][0] == '@') address.sun_path[0] = '\0';
  socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(words[1]);
  if (bind(listener, (struct sockaddr *)&address, length) < 0) return 1;
  if (setsockopt(listener, SOL_SOCKET, SO_PASSCRED, &one, sizeof one) < 0) return 1;
  puts("listens");
  fflush(stdout);

  for (;;) {
    char text[4096], control[256];
    struct iovec place = {text, sizeof text - 1};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(listener, &message, 0);
    if (bytes < 0) return 1;
    text[bytes] = '\0';
    int sender = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET) continue;
      if (part->cmsg_type == SCM_CREDENTIALS) sender = ((struct ucred *)CMSG_DATA(part))->pid;
      /* who asks whether all was read waits until this is closed */
      if (part->cmsg_type == SCM_RIGHTS) close(*(int *)CMSG_DATA(part));
    }
    printf("%d %s\n", sender, text);
    fflush(stdout);
    if (strstr(text, "BARRIER=1")) return 0;
  }
}
