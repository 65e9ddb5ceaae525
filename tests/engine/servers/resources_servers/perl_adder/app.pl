#!/usr/bin/perl
# A resources server over HTTP alone: seed_session, the tool "add", verify, aggregate_metrics. One request at a time is enough here.
use strict;
use warnings;
use IO::Socket::INET;
use JSON::PP;

$| = 1;
my $json = JSON::PP->new->utf8->canonical;

open my $file, '<', $ENV{GYM_CONFIG_FILE} or die "no config: $!";
my $config = $json->decode(do { local $/; <$file> });
my $own = $config->{ $ENV{NEMO_GYM_CONFIG_PATH} }{resources_servers}{perl_adder};
my $reward = $own->{reward} // 1.0;

my %sums;      # session => sums that its tool gave
my $last = 0;

my %routes = (
    'GET /'               => sub { +{ status => 'ok' } },
    'POST /seed_session'  => sub { my ($body, $session) = @_; $sums{$session} = []; +{} },
    'POST /close_session' => sub { my ($body, $session) = @_; delete $sums{$session}; +{ resources_session_id => $body->{resources_session_id} } },
    'POST /add'           => sub {
        my ($body, $session) = @_;
        my $sum = $body->{a} + $body->{b};
        push @{ $sums{$session} }, $sum;
        +{ sum => $sum };
    },
    'POST /verify' => sub {
        my ($body, $session) = @_;
        my @seen = map { $json->decode($_->{output})->{sum} } grep { $_->{type} eq 'function_call_output' } @{ $body->{response}{output} };
        my $right = @seen && "@seen" eq "@{ $sums{$session} || [] }";
        +{ %$body, reward => $right ? $reward + 0.0 : 0.0, sums => \@seen };
    },
    'POST /aggregate_metrics' => sub {
        my ($body) = @_;
        my @rewards = map { $_->{reward} } @{ $body->{verify_responses} };
        my $total = 0;
        $total += $_ for @rewards;
        my $mean = @rewards ? $total / @rewards : 0;
        +{  group_level_metrics => [], repeat_level_metrics => [], perf_summary => undef,
            agent_metrics => { 'mean/reward' => $mean }, key_metrics => { 'mean/reward' => $mean } };
    },
);

my $server = IO::Socket::INET->new(LocalAddr => '0.0.0.0', LocalPort => $ENV{GYM_PORT}, Listen => 128, ReuseAddr => 1) or die "cannot listen: $!";
print "listening on port $ENV{GYM_PORT}\n";
while (my $client = $server->accept) {
    my ($method, $path) = split / /, scalar(<$client>) // '';
    my %header;
    while (defined(my $line = <$client>)) {
        $line =~ s/\r?\n$//;
        last if $line eq '';
        $header{ lc $1 } = $2 if $line =~ /^([^:]+):\s*(.*)$/;
    }
    read $client, my $text, $header{'content-length'} || 0;
    my ($session) = ($header{cookie} // '') =~ /perl_adder=(\w+)/;
    $session //= 's' . ++$last;
    my $route = $routes{ ($method // '') . ' ' . ($path // '') };
    my $answer = eval { $route ? $route->($text ? $json->decode($text) : {}, $session) : +{ detail => 'Not Found' } };
    my ($status, $body) = defined $answer ? ($route ? '200 OK' : '404 Not Found', $answer) : ('500 Internal Server Error', { detail => "$@" });
    my $bytes = $json->encode($body);
    print $client "HTTP/1.1 $status\r\nContent-Type: application/json\r\nContent-Length: ", length $bytes,
        "\r\nSet-Cookie: perl_adder=$session; Path=/\r\nConnection: close\r\n\r\n", $bytes;
    close $client;
}
