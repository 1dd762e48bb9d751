# A guest without a microVM: it opens a tap as a VMM does. A line of hexadecimal digits on standard input is a frame that
# the guest sends; a line on standard output is one that it gets.
use strict;
use warnings;
use Fcntl;
$| = 1;
my $name = shift;
sysopen(my $tap, "/dev/net/tun", O_RDWR) or die "tun: $!\n";
my $request = pack("a16 S x22", $name, 0x1002);    # IFF_TAP | IFF_NO_PI
ioctl($tap, 0x400454ca, $request) or die "$name: $!\n";    # TUNSETIFF
print "open\n";
my $rest = "";
while (1) {
  my $ready = "";
  vec($ready, fileno($tap), 1) = 1;
  vec($ready, fileno(STDIN), 1) = 1;
  select($ready, undef, undef, undef);
  if (vec($ready, fileno($tap), 1)) {
    sysread($tap, my $frame, 65536) or last;
    print unpack("H*", $frame), "\n";
  }
  if (vec($ready, fileno(STDIN), 1)) {
    sysread(STDIN, my $bytes, 65536) or last;
    $rest .= $bytes;
    while ($rest =~ s/^(.*)\n//) { syswrite($tap, pack("H*", $1)) }
  }
}
