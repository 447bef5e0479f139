#!/bin/sh
# A Slurm of its own, with several nodes on this machine: tests/support/slurm_cluster.h runs it.
#
#   slurm_cluster.sh DIRECTORY NODES FIRST_PORT GPUS
#
# Configuration, logs and state stand below DIRECTORY; SLURM_CONF is DIRECTORY/slurm.conf. Prints
# "ready" when all nodes are, and goes on until it is killed. It belongs into a process namespace of its own, which ends
# with it.
set -eu
directory=$1 nodes=$2 port=$3 gpus=$4
cd "$directory"
chmod 755 .
mkdir -p state log munge
chmod 711 munge
head -c 128 /dev/urandom >munge/key
chmod 400 munge/key
munged --force --key-file="$PWD/munge/key" --socket="$PWD/munge/socket" --pid-file="$PWD/munge/pid" \
  --log-file="$PWD/munge/log" --seed-file="$PWD/munge/seed"

# So many GPUs on each node, which nobody opens.
gres=
if [ "$gpus" -gt 0 ]; then
  gres="Gres=gpu:$gpus"
  mkdir -p dev
  for gpu in $(seq 0 $((gpus - 1))); do [ -e "dev/nvidia$gpu" ] || mknod "dev/nvidia$gpu" c 1 3; done
  echo "Name=gpu File=$PWD/dev/nvidia[0-$((gpus - 1))]" >gres.conf
else
  : >gres.conf
fi

me=$(hostname -s)
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$me(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$PWD/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/%n/spool
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/%n/slurmd.pid
SlurmctldLogFile=$PWD/log/slurmctld
SlurmdLogFile=$PWD/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,permit_job_expansion
SlurmdParameters=config_overrides
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=sn[1-$nodes] NodeHostname=$me NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=4 RealMemory=1000 $gres
PartitionName=main Nodes=sn[1-$nodes] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
PartitionName=urgent Nodes=sn[1-$nodes] MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
END
export SLURM_CONF="$PWD/slurm.conf"
slurmctld -f "$SLURM_CONF" -c

# Each node has a copy of the configuration, beside a mpi.conf of its own: two nodes on one machine would make the same
# directory for PMIx otherwise.
for number in $(seq "$nodes"); do
  node=sn$number
  mkdir -p "$node/spool" "$node/tmp"
  cp slurm.conf gres.conf "$node/"
  echo "PMIxCliTmpDirBase=$PWD/$node/tmp" >"$node/mpi.conf"
  slurmd -f "$PWD/$node/slurm.conf" -N "$node"
done

for _ in $(seq 600); do
  [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ] && break
  sleep 0.1
done
echo ready
exec sleep infinity
