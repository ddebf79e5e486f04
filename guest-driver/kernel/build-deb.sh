#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Packs the module's source as niclab-dkms_VERSION_all.deb, for a user's own Debian guest. Needs dpkg-deb but not root.
#
#   build-deb.sh [OUTPUT-FOLDER]      default: the current folder
#
# In the guest: apt install dkms linux-headers-amd64 ./niclab-dkms_VERSION_all.deb
set -eu

here=$(cd "$(dirname "$0")" && pwd)
abi=$here/../../device/abi/include/niclab_abi.h
output=${1:-.}
version=$(sed -n 's/^MODULE_VERSION("\(.*\)");$/\1/p' "$here/niclab_main.c")

die() {
	echo "build-deb.sh: $1" >&2
	exit 1
}
[ -n "$version" ] || die "no MODULE_VERSION in $here/niclab_main.c; restore the line"
[ -f "$abi" ] || die "$abi is missing; run 'cargo run -p niclab-abi-header'"
[ -d "$output" ] || die "$output is not a folder; create it first"
command -v dpkg-deb >/dev/null || die "dpkg-deb is not installed; install the package dpkg"

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
umask 022
chmod 755 "$staging"

# fill TEMPLATE FILE MODE: writes FILE from TEMPLATE with the version filled in.
fill() {
	sed "s/@VERSION@/$version/g" "$here/debian/$1" >"$2"
	chmod "$3" "$2"
}

source=$staging/usr/src/niclab-$version
documents=$staging/usr/share/doc/niclab-dkms
mkdir -p "$staging/DEBIAN" "$source" "$documents"
install -m 644 "$here"/*.c "$here"/*.h "$here/Makefile" "$abi" "$source"
install -m 644 "$here/COPYING" "$documents/copyright"
fill dkms.conf.in "$source/dkms.conf" 644
fill control.in "$staging/DEBIAN/control" 644
fill postinst.in "$staging/DEBIAN/postinst" 755
fill prerm.in "$staging/DEBIAN/prerm" 755

package=$output/niclab-dkms_${version}_all.deb
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0} dpkg-deb --root-owner-group --build "$staging" "$package" >/dev/null
echo "$package"
