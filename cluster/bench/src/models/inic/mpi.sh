# One stream over Debian's MPICH, coordinated as niclab-perf is: run on both nodes, with the bytes of a message, the
# messages, those of the warm-up, and the program's source.
set -e
folder=${TMPDIR:-/tmp}/niclab-mpi
rm -rf $folder
mkdir $folder
cd $folder
printf '%s' "$4" >stream.c
tcc -o stream stream.c /usr/lib/x86_64-linux-gnu/libmpich.so.12
mkfifo cues answers
exec 3<&0
# The processes of MPI are the children of ssh and mpiexec: what they say and hear goes through this script.
relay() {
    while read -r cue; do
        echo "$cue" >&2
        read -r answer <&3
        echo "$answer"
    done <cues >answers
}
# When both nodes have come here, both have the program.
echo 'niclab-perf: cue built' >&2
read -r answer
if [ "$NICLAB_RANK" = 0 ]; then
    relay &
    mpiexec -hosts "$NICLAB_ADDRESSES" -n 2 ./stream "$1" "$2" "$3" </dev/null
else
    relay
fi
