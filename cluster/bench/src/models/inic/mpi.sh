# A stream over Debian's MPICH, with niclab-perf's barriers. Runs on both nodes. Arguments: bytes of a message,
# number of messages, number of warm-up messages, and the program's source.
set -e
folder=${TMPDIR:-/tmp}/niclab-mpi
rm -rf $folder
mkdir $folder
cd $folder
printf '%s' "$4" >stream.c
tcc -o stream stream.c /usr/lib/x86_64-linux-gnu/libmpich.so.12
mkfifo cues answers
exec 3<&0
# MPI's processes are children of ssh and mpiexec, so this script relays their barriers.
relay() {
    while read -r cue; do
        echo "$cue" >&2
        read -r answer <&3
        echo "$answer"
    done <cues >answers
}
# After this barrier, both nodes have the program.
echo 'niclab-perf: cue built' >&2
read -r answer
if [ "$NICLAB_RANK" = 0 ]; then
    relay &
    mpiexec -hosts "$NICLAB_ADDRESSES" -n 2 ./stream "$1" "$2" "$3" </dev/null
else
    relay
fi
