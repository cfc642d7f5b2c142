//! Protocol tests of zc-nbd: the server against raw bytes, the client against raw bytes, both against each other.
//!
//! Names begin with the rule of proto.md that they check, if there is one. No sockets are used.

#[cfg(test)]
mod bytes;
#[cfg(test)]
mod client_rules;
#[cfg(test)]
mod client_tls;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod extended_rules;
#[cfg(test)]
mod fuzz_bodies;
#[cfg(test)]
mod handshake_rules;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod inquiry_rules;
#[cfg(test)]
mod loopback;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod rules_table;
#[cfg(test)]
mod tls_rules;
#[cfg(test)]
mod transmission_rules;
#[cfg(test)]
mod wire_round_trip;
