# SPDX-License-Identifier: Apache-2.0
# Packs the folder NAME of the current folder: cmake -DNAME=... -DOUTPUT=... -P archive.cmake
file(ARCHIVE_CREATE OUTPUT ${OUTPUT} PATHS ${NAME} FORMAT gnutar COMPRESSION Zstd COMPRESSION_LEVEL 15)
