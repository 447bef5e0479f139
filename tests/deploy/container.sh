#!/bin/sh
# Process 1 of a container as a kubelet makes it, in namespaces of its own: a root that cannot be
# written, a /dev/shm of 64 MB, volumes, a user without an entry in /etc/passwd and without any
# capability, and the environment of a pod. Then COMMAND takes its place.
#
#   container.sh NAME USER GROUP FS_GROUP STATE [secret:DIR|empty:DIR|claim:DIR]... -- \
#     [VARIABLE=VALUE]... COMMAND...
#
# STATE is a directory of the host: its hosts and token become /etc/hosts and the Secret, its volume
# a claim, its data is mounted at /data, as a shared volume would be.
set -eu
name=$1 user=$2 group=$3 fs_group=$4 state=$5
shift 5

hostname "$name"
cd /
mount -t proc proc /proc
mount -t tmpfs -o size=64m,mode=1777 shm /dev/shm
mount --bind "$state/hosts" /etc/hosts
mkdir -p /data
mount --bind "$state/data" /data

while [ "$1" != -- ]; do
  directory=${1#*:}
  mkdir -p "$directory"
  case $1 in
    empty:*)
      mount -t tmpfs -o "mode=2777,gid=$fs_group" volume "$directory"
      ;;
    claim:*) # each mount opens what lies there to the group
      chgrp -R "$fs_group" "$state/volume"
      find "$state/volume" -type d -exec chmod ug+rwx,g+s {} +
      find "$state/volume" -type f -exec chmod ug+rw {} +
      mount --bind "$state/volume" "$directory"
      ;;
    secret:*) # root's, its group reads, behind two links
      mount -t tmpfs -o "mode=3777,gid=$fs_group" volume "$directory"
      mkdir "$directory/..2026_01_01"
      cp "$state/token" "$directory/..2026_01_01/token"
      chown "0:$fs_group" "$directory/..2026_01_01/token"
      chmod 0440 "$directory/..2026_01_01/token"
      ln -s ..2026_01_01 "$directory/..data"
      ln -s ..data/token "$directory/token"
      mount -o remount,ro "$directory"
      ;;
  esac
  shift
done
shift

mount -t tmpfs -o ro,mode=0700 none /root
mount -t tmpfs -o ro none /run
mount -o remount,ro /
exec setpriv --reuid "$user" --regid "$group" --groups "$group,$fs_group" \
  --inh-caps=-all --bounding-set=-all --no-new-privs \
  env -i PATH=/opt/hvd/bin:/usr/bin:/bin HOME=/ HOSTNAME="$name" \
  KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=443 "$@"
