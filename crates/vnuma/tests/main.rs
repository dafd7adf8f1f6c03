//! All tests of virtual topologies in one program, linked once; each file has a subject.

mod documents;
mod formats;
mod notes;
mod sizes;

use vnuma::{Host, Mib, Options, Vm};

/// A VM of so many vCPUs and 64 GiB.
fn vm(vcpus: u32, options: Options) -> Vm {
    Vm { name: "db".into(), vcpus, memory: Mib(64 << 10), options }
}

fn host(shape: &str) -> Host {
    Host::of_shape(shape, shape).unwrap_or_else(|e| panic!("{e}"))
}

fn ht() -> Options {
    Options { prefer_ht: true, ..Options::default() }
}

fn sockets_of(cores_per_socket: u32) -> Options {
    Options { cores_per_socket, ..Options::default() }
}
