#!/bin/sh
# Makes the two fonts of this folder from Debian's fonts-dejavu-core with fonttools' pyftsubset:
# Basic Latin, Latin-1 and the few symbols that the pictures use; no hinting, no layout tables.
set -eu
cd "$(dirname "$0")"
for face in DejaVuSans DejaVuSans-Bold; do
    pyftsubset "/usr/share/fonts/truetype/dejavu/$face.ttf" \
        --unicodes="U+0020-007E,U+00A0-00FF,U+2013,U+2014,U+2018,U+2019,U+201C,U+201D,U+2022,U+2026,U+2192,U+2212,U+2260,U+2264,U+2265,U+03BC,U+25B2,U+25BC,U+25C6" \
        --no-hinting --layout-features= --name-IDs=0,1,2,4,6 --drop-tables+=GSUB,GPOS,kern,FFTM,MATH,GDEF \
        --output-file="$face.subset.ttf"
done
