#!/usr/bin/env python3
"""logs.py BEFORE AFTER KIND OUT: a seed of the target "logs" from a hive before and after an edit.

KIND is "new" (HvLE, the pages that differ in two logs) or "old" (DIRT); with "-lost", the hive's base block is half
written. The seed is BEFORE, made dirty, its two
logs, their lengths in units of 512 bytes, and a byte that says what the target makes right first.
Layout after the public description of the format (msuhanov/regf).
"""
import struct
import sys

PAGE, BLOCK, BASE = 4096, 512, 4096


def padded(data, unit=512):
    return data + bytes(-len(data) % unit)


def entry(number, bins, pages):
    references = b"".join(struct.pack("<II", offset, len(page)) for offset, page in pages)
    body = references + b"".join(page for _, page in pages)
    size = (40 + len(body) + 511) // 512 * 512
    return padded(struct.pack("<4sIIIII", b"HvLE", size, 0, number, bins, len(pages)) + bytes(16) + body)


def differing(before, after, unit):
    bins = len(after) - BASE
    return [
        (at, after[BASE + at : BASE + at + unit])
        for at in range(0, bins, unit)
        if before[BASE + at : BASE + at + unit] != after[BASE + at : BASE + at + unit]
    ]


def main():
    before, after, kind, out = sys.argv[1:]
    before, after = open(before, "rb").read(), open(after, "rb").read()
    # With the room that Windows leaves, or the hive would be read, but not edited.
    before += bytes(len(after) + 8192 - len(before))
    head = after[:512]
    bins, number = len(after) - BASE, struct.unpack("<I", before[8:12])[0]
    if kind.startswith("new"):
        pages = differing(before, after, PAGE)
        half = (len(pages) + 1) // 2
        entries = [entry(number + n, bins, part) for n, part in enumerate([pages[:half], pages[half:], pages])]
        logs = [head + b"".join(entries[:2]), head + entries[2]]
        mode = 0x3F
    else:
        blocks = differing(before, after, BLOCK)
        bitmap = bytearray(bins // BLOCK // 8)
        for at, _ in blocks:
            bitmap[at // BLOCK // 8] |= 1 << at // BLOCK % 8
        logs = [head + padded(b"DIRT" + bytes(bitmap)) + b"".join(block for _, block in blocks), b""]
        mode = 0x47
    if kind.endswith("-lost"):
        before, mode = before[:256] + b"lost" + before[260:], mode & ~2
    lengths = struct.pack("<HH", *(len(log) // 512 for log in logs))
    with open(out, "wb") as file:
        file.write(before + b"".join(logs) + lengths + bytes([mode]))


main()
