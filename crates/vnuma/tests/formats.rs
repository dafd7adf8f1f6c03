//! What a plan looks like: text, libvirt's XML, QEMU's arguments.

use crate::{host, sockets_of, vm};
use topology::{NodeFacts, Shape, Topology};
use vnuma::{Host, Options, Plan, plan};

/// A machine of three nodes, numbered 0, 1 and 4, with distances.
fn machine(distances: [[u32; 3]; 3]) -> Host {
    let shape = Shape {
        sockets: 3,
        nodes_per_socket: 1,
        llcs_per_node: 1,
        cores_per_llc: 4,
        threads_per_core: 2,
    };
    let fact = |i: usize, id| NodeFacts {
        id,
        pcpus: format!("{}-{}", i * 8, i * 8 + 7).parse().unwrap(),
        memory_kib: Some(32 << 20),
        distances: distances[i].to_vec(),
    };
    let facts = [fact(0, 0), fact(1, 1), fact(2, 4)];
    Host::new("m", &Topology::regular(shape).unwrap(), &facts).unwrap()
}

const PLAIN: [[u32; 3]; 3] = [[10, 20, 20], [20, 10, 20], [20, 20, 10]];
const FAR: [[u32; 3]; 3] = [[10, 16, 32], [16, 10, 255], [32, 255, 10]];

fn on_machine(vcpus: u32, options: Options, distances: [[u32; 3]; 3]) -> Plan {
    plan(&vm(vcpus, options), &machine(distances), None).unwrap()
}

#[test]
fn text_shows_virtual_nodes_above_and_the_hosts_below() {
    let plan = plan(&vm(16, Options::default()), &host("2x1x8x2:64G"), None).unwrap();
    assert_eq!(
        plan.draw(),
        "VM db: 16 vCPUs, 64 GiB
  virtual nodes: 2 of 8 vCPUs; a node of host 2x1x8x2:64G has room for 8 vCPUs, by its cores
  sockets: 2 of 8 cores
  on this host: fits; what is local for the guest is local on the host
  virtual node 0: vCPUs 0-7, 32 GiB
    client: vCPUs 0-7 on node 0
    memory: on node 0
  virtual node 1: vCPUs 8-15, 32 GiB
    client: vCPUs 8-15 on node 1
    memory: on node 1
host 2x1x8x2:64G: 2 nodes, 16 cores, 32 pCPUs
  node 0: pCPUs 0-15, 8 cores, 64 GiB; 8 vCPUs and 32 GiB of this VM
  node 1: pCPUs 16-31, 8 cores, 64 GiB; 8 vCPUs and 32 GiB of this VM
"
    );
}

#[test]
fn each_virtual_node_is_a_cell_whose_memory_is_bound_to_its_home() {
    let xml = on_machine(10, Options::default(), PLAIN).libvirt(true);
    let pins: String = (0..10)
        .map(|v| {
            let set = ["0-7", "8-15", "16-23"][if v < 4 { 0 } else { (v - 1) / 3 }];
            format!("  <vcpupin vcpu='{v}' cpuset='{set}'/>\n")
        })
        .collect();
    assert_eq!(
        xml,
        format!(
            "<memory unit='MiB'>65536</memory>
<vcpu placement='static' cpuset='0-23'>10</vcpu>
<cputune>
{pins}</cputune>
<numatune>
  <memory mode='strict' nodeset='0-1,4'/>
  <memnode cellid='0' mode='strict' nodeset='0'/>
  <memnode cellid='1' mode='strict' nodeset='1'/>
  <memnode cellid='2' mode='strict' nodeset='4'/>
</numatune>
<cpu mode='host-passthrough'>
  <topology sockets='10' dies='1' cores='1' threads='1'/>
  <numa>
    <cell id='0' cpus='0-3' memory='26214' unit='MiB'/>
    <cell id='1' cpus='4-6' memory='19661' unit='MiB'/>
    <cell id='2' cpus='7-9' memory='19661' unit='MiB'/>
  </numa>
</cpu>
"
        )
    );
}

#[test]
fn memory_over_several_homes_is_interleaved() {
    let most = Options { max_per_virtual_node: Some(8), ..Options::default() };
    let two = on_machine(16, most, FAR);
    let xml = two.libvirt(false);
    assert!(xml.contains("<vcpu placement='static'>16</vcpu>\n<numatune>\n"), "{xml}");
    assert!(xml.contains("<memory mode='interleave' nodeset='0-1,4'/>"), "{xml}");
    assert!(xml.contains("<memnode cellid='0' mode='interleave' nodeset='0-1'/>"), "{xml}");
    assert!(xml.contains("<memnode cellid='1' mode='interleave' nodeset='0,4'/>"), "{xml}");
    assert!(!xml.contains("distances"), "a virtual node of two homes has no distance");
    let qemu = two.qemu().join(" ");
    assert!(qemu.contains("id=vnode0,size=32768M,host-nodes=0-1,policy=interleave"), "{qemu}");
    assert!(qemu.contains("size=32768M,host-nodes=0,host-nodes=4,policy=interleave"), "{qemu}");
}

#[test]
fn qemu_gets_sockets_memory_and_nodes() {
    let plan = on_machine(12, Options::default(), PLAIN);
    assert_eq!(
        plan.qemu_lines(),
        "-smp 12,sockets=3,cores=4,threads=1 \\
-m 65536M \\
-object memory-backend-ram,id=vnode0,size=21845M,host-nodes=0,policy=bind \\
-numa node,nodeid=0,cpus=0-3,memdev=vnode0 \\
-object memory-backend-ram,id=vnode1,size=21845M,host-nodes=1,policy=bind \\
-numa node,nodeid=1,cpus=4-7,memdev=vnode1 \\
-object memory-backend-ram,id=vnode2,size=21846M,host-nodes=4,policy=bind \\
-numa node,nodeid=2,cpus=8-11,memdev=vnode2
"
    );
}

#[test]
fn distances_are_those_between_homes_where_they_say_more_than_qemus_own() {
    assert_eq!(on_machine(12, Options::default(), PLAIN).distances, None);
    let far = on_machine(12, Options::default(), FAR);
    // 255 is unreachable, and no distance.
    let want = vec![vec![10, 16, 32], vec![16, 10, 254], vec![32, 254, 10]];
    assert_eq!(far.distances, Some(want));
    assert!(far.libvirt(true).contains(
        "<cell id='0' cpus='0-3' memory='21845' unit='MiB'>
      <distances>
        <sibling id='0' value='10'/>
        <sibling id='1' value='16'/>
        <sibling id='2' value='32'/>
      </distances>
    </cell>"
    ));
    let qemu = far.qemu().join(" ");
    assert_eq!(qemu.matches("-numa dist,").count(), 6);
    assert!(qemu.contains("-numa dist,src=0,dst=2,val=32 "), "{qemu}");
    // Two virtual nodes of one home: Linux takes no table with 10 between different nodes.
    let shared = on_machine(12, sockets_of(2), FAR).distances.unwrap();
    assert_eq!((shared[0][3], shared[0][0]), (11, 10));
}

#[test]
fn a_vm_of_one_node_has_no_cells_and_its_memory_is_bound_as_a_whole() {
    let one = on_machine(4, Options::default(), PLAIN);
    let xml = one.libvirt(true);
    assert!(!xml.contains("<numa>") && !xml.contains("memnode"), "{xml}");
    assert!(xml.contains("<memory mode='strict' nodeset='0'/>"), "{xml}");
    assert_eq!(
        one.qemu()[4..],
        [
            "-object",
            "memory-backend-ram,id=ram,size=65536M,host-nodes=0,policy=bind",
            "-machine",
            "memory-backend=ram"
        ]
    );
    // 8 vCPUs have two homes and no virtual topology.
    let wide = on_machine(8, Options::default(), PLAIN);
    assert!(wide.libvirt(true).contains("<memory mode='interleave' nodeset='0-1'/>"));
    // A host of one node has no choice.
    let alone = plan(&vm(16, Options::default()), &host("1x1x8x2:64G"), None).unwrap();
    assert!(!alone.libvirt(true).contains("numatune"));
    assert!(alone.libvirt(true).contains("<cell id='1'"));
    assert!(alone.qemu().contains(&"memory-backend-ram,id=vnode0,size=32768M".to_owned()));
}

#[test]
fn names_are_escaped_and_numbers_of_a_shape_are_marked() {
    let mut named = vm(4, Options::default());
    named.name = "<a & 'b'>".into();
    let on = Host::of_shape("old--host", "2x1x8x2:64G").unwrap();
    let xml = plan(&named, &on, None).unwrap().libvirt_domain(false);
    assert!(xml.contains("<name>&lt;a &amp; &apos;b&apos;&gt;</name>"), "{xml}");
    assert!(xml.contains("<!-- nodes and pCPUs are numbered as in host old  host, not"), "{xml}");
    assert!(!on_machine(4, Options::default(), PLAIN).libvirt_domain(true).contains("<!--"));
    assert_eq!(vnuma::escaped("a\u{1}\n\"b"), "a  &quot;b");
}
