#!/bin/sh
# Cargo calls this with the compiler and its arguments: links our programs statically, and changes nothing else.
case " $* " in
*" --crate-name zcached "* | *" --crate-name zcctl "* | *" --crate-name zcsim "*) exec "$@" -C target-feature=+crt-static ;;
*) exec "$@" ;;
esac
