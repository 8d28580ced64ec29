#!/usr/bin/env python3
"""volume.py mounted FOLDER | closed VOLUME CLUSTER: what volume.sh can't do with a public tool.

In the mounted volume: a file in 400 pieces, an object identifier, an 8.3 name. In the volume itself, whose $LogFile
begins in that cluster of 512 bytes: the restart pages of a log that was closed, as ntfs-3g's logfile.h has them.
"""
import os
import struct
import sys

CLUSTER, PAGE = 512, 4096


def mounted(top):
    sysprep, panther = f"{top}/Windows/System32/Sysprep", f"{top}/Windows/Panther"
    with open(f"{sysprep}/pieces-unattend.xml", "wb", buffering=0) as pieces, open(f"{top}/pad", "wb", buffering=0) as pad:
        # Each takes the cluster behind the other's.
        for number in range(400):
            pieces.write(bytes([number % 255 + 1]) * CLUSTER)
            pad.write(b"x" * CLUSTER)
    os.unlink(f"{top}/pad")
    with open(f"{panther}/unattend-object.xml", "wb") as out:
        out.write(b"x" * 2000)
    os.setxattr(f"{panther}/unattend-object.xml", "system.ntfs_object_id", bytes(range(1, 17)))
    os.setxattr(f"{panther}/unattend-original.xml", "system.ntfs_dos_name", b"UNATTE~1.XML")


def closed(volume, cluster):
    page = bytearray(PAGE)
    page[:30] = struct.pack("<4sHHQIIHHH", b"RSTR", 30, PAGE // 512 + 1, 0, PAGE, PAGE, 48, 1, 1)
    page[48:64] = struct.pack("<QHHHH", 4096, 1, 0xFFFF, 0xFFFF, 2)
    page[30:32] = b"\1\0"
    for end in range(510, PAGE, 512):
        page[end : end + 2] = b"\1\0"
    with open(volume, "r+b") as out:
        out.seek(cluster * CLUSTER)
        assert out.read(4) == b"\xff" * 4, "this is not where $LogFile begins"
        out.seek(cluster * CLUSTER)
        out.write(page * 2)


if sys.argv[1] == "mounted":
    mounted(sys.argv[2])
else:
    closed(sys.argv[2], int(sys.argv[3]))
