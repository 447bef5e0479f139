# Steps that the page of packages does not show, where they are installed: in /clone, with the consumer of this folder.

# The shared library, which the examples do not need, and what a package of the program would depend on.
cmake -S consumer -B built
cmake --build built --target consumer
hvdrun -np 2 built/consumer
mkdir debian
touch debian/control
dpkg-shlibdeps -O built/consumer

test -s "$(man --where hvdrun)"
bash -c '. /usr/share/bash-completion/completions/hvdrun && complete -p hvdrun'

# The unit: nothing has enabled it, it says nothing that systemd does not know, and its command joins a job.
unit=/usr/lib/systemd/system/hvd-agent@.service
test -z "$(find /etc/systemd -name 'hvd-agent*')"
systemd-analyze verify "$unit"
useradd --create-home alice
sed -i 's|^#AGENT_JOIN=.*|AGENT_JOIN=tls://127.0.0.1:4000|; s|^AGENT_OPTIONS=.*|AGENT_OPTIONS="--slots 2"|' \
  /etc/default/hvd-agent
hvdrun --join-bind 127.0.0.1:4000 --token-file token -np 2 sh -c 'echo "as $(id -un)"; exec built/consumer' &
job=$!
until [ -s token ]; do sleep 0.05; done
install -o alice -g alice -m 0600 token ~alice/hvd-token
runuser alice -c "cd; . /etc/default/hvd-agent; exec $(sed -n 's/^ExecStart=//p' "$unit")"
wait "$job"
