//! `tandem vnuma`: hosts by every way of naming them, decisions that are remembered, and what
//! libvirt and QEMU make of the output where they are installed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tandem(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.arg("vnuma").args(line.split_whitespace()).current_dir(ROOT).env_remove("COLUMNS");
    command
}

/// Exit code, standard output and standard error.
fn ends(line: &str) -> (i32, String, String) {
    let Output { status, stdout, stderr } = tandem(line).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

fn said(line: &str) -> String {
    let (code, out, error) = ends(line);
    assert_eq!(code, 0, "{line}: {error}");
    out
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(&said(line)).expect("JSON")
}

/// Exit code and standard error, with nothing on standard output.
fn refused(line: &str) -> (i32, String) {
    let (code, out, error) = ends(line);
    assert_eq!(out, "", "{line}");
    (code, error)
}

/// An empty folder of this test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("vnuma-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

/// A copy of the sysfs of a machine of two nodes, 0 and 2, of 8 pCPUs without hyper-threads each,
/// with 32 GiB in each and memory without pCPUs in node 1.
fn sysfs(name: &str) -> String {
    let root = folder(name);
    let write = |path: String, text: &str| {
        let path = root.join("devices/system").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("cpu/possible".into(), "0-15\n");
    write("cpu/online".into(), "0-15\n");
    for cpu in 0..16 {
        let (node, package) = if cpu < 8 { (0, "0-7\n") } else { (2, "8-15\n") };
        write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &format!("{cpu}\n"));
        write(format!("cpu/cpu{cpu}/topology/package_cpus_list"), package);
        write(format!("cpu/cpu{cpu}/node{node}/cpulist"), package);
    }
    write("node/online".into(), "0-2\n");
    for (node, pcpus, kib, distance) in [
        (0, "0-7\n", 32 << 20, "10 17 28\n"),
        (1, "\n", 8 << 20, "17 10 28\n"),
        (2, "8-15\n", 32 << 20, "28 28 10\n"),
    ] {
        write(format!("node/node{node}/cpulist"), pcpus);
        write(format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal: {kib} kB\n"));
        write(format!("node/node{node}/distance"), distance);
    }
    root.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_copy_of_sysfs_is_planned_for_by_the_kernels_numbers() {
    let host = sysfs("sysfs");
    let vm = format!("plan --name db --vcpus 16 --memory 48G --host box={host}");
    assert_eq!(
        said(&vm),
        "VM db: 16 vCPUs, 48 GiB
  virtual nodes: 2 of 8 vCPUs; a node of host box has room for 8 vCPUs, by its cores
  sockets: 2 of 8 cores
  on this host: fits; what is local for the guest is local on the host
  virtual node 0: vCPUs 0-7, 24 GiB
    client: vCPUs 0-7 on node 0
    memory: on node 0
  virtual node 1: vCPUs 8-15, 24 GiB
    client: vCPUs 8-15 on node 2
    memory: on node 2
host box: 2 nodes, 16 cores, 16 pCPUs
  node 0: pCPUs 0-7, 8 cores, 32 GiB; 8 vCPUs and 24 GiB of this VM
  node 2: pCPUs 8-15, 8 cores, 32 GiB; 8 vCPUs and 24 GiB of this VM
"
    );
    assert_eq!(
        said(&format!("{vm} --qemu")),
        "-smp 16,sockets=2,cores=8,threads=1 \\
-m 49152M \\
-object memory-backend-ram,id=vnode0,size=24576M,host-nodes=0,policy=bind \\
-numa node,nodeid=0,cpus=0-7,memdev=vnode0 \\
-object memory-backend-ram,id=vnode1,size=24576M,host-nodes=2,policy=bind \\
-numa node,nodeid=1,cpus=8-15,memdev=vnode1 \\
-numa dist,src=0,dst=1,val=28 \\
-numa dist,src=1,dst=0,val=28
"
    );
    let xml = said(&format!("{vm} --xml"));
    assert!(xml.contains("<vcpupin vcpu='8' cpuset='8-15'/>"), "{xml}");
    assert!(xml.contains("<memnode cellid='1' mode='strict' nodeset='2'/>"), "{xml}");
    let plan = json(&format!("{vm} --json"));
    assert_eq!(plan["decision"]["nodes"][1]["vcpus"], "8-15");
    assert_eq!(plan["mapping"]["case"], "fits");
    assert_eq!(plan["mapping"]["clients"][1]["memory_on"], serde_json::json!([2]));
    assert_eq!((&plan["qemu"][0], &plan["guest"]["cores"]), (&"-smp".into(), &8.into()));
}

#[test]
fn a_shape_a_scenario_and_this_machine_are_hosts() {
    let nodes = |host: &str| {
        let plan = json(&format!("plan --vcpus 4 --memory 4G --host {host} --json"));
        (plan["host"]["name"].clone(), plan["host"]["nodes"].as_array().expect("a list").len())
    };
    assert_eq!(nodes("2x2x8x2:64G"), ("2x2x8x2:64G".into(), 4));
    assert_eq!(nodes("a=2x2x8x2:64G"), ("a".into(), 4));
    assert_eq!(nodes("shares-ratio-2x2x2"), ("shares-ratio-2x2x2".into(), 2));
    let plan = json("plan --vcpus 4 --memory 4G --host three-on-two --json");
    let host = &plan["host"];
    assert_eq!(host["distances"], serde_json::json!([[10, 16], [16, 10]]));
    let memory = |node: usize| host["nodes"][node]["memory"].as_u64();
    assert_eq!([memory(0), memory(1)], [Some(16 << 10); 2]);
    assert!(nodes("this").1 >= 1);
    // Numbers that are no machine's are marked.
    let (_, _, error) = ends("plan --vcpus 4 --memory 4G --host a=2x1x8x2 --qemu");
    assert_eq!(error, "note: nodes are numbered as in host a, not as on a machine\n");
    let plan = json("plan --vcpus 4 --memory 4G --json");
    assert_eq!(
        (&plan["host"]["name"], &plan["host"]["is_machine"]),
        (&"this".into(), &true.into())
    );
}

#[test]
fn what_is_decided_once_is_kept_in_the_file_and_followed_on_another_host() {
    let path = folder("kept").join("vms.json");
    let file = path.to_str().expect("UTF-8");
    let size = |vm: &str, rest: &str| {
        let line = format!("plan --name {vm} --memory 64G --remember {file} --json {rest}");
        json(&line)["decision"]["size"].as_u64().expect("a number")
    };
    assert_eq!(size("db", "--vcpus 32 --host old=4x1x8x2:64G"), 8);
    assert_eq!(
        fs::read_to_string(&path).expect("a file"),
        "{
  \"format\": 1,
  \"vms\": {
    \"db\": {
      \"vcpus\": 32,
      \"size\": 8,
      \"host\": \"old\",
      \"reason\": \"a node of host old has room for 8 vCPUs, by its cores\"
    }
  }
}
"
    );
    let before = fs::read(&path).expect("a file");
    assert_eq!(size("db", "--vcpus 32 --host new=8x1x4x2:64G"), 8);
    assert_eq!(size("db", "--vcpus 32 --host new=8x1x4x2:64G --autosize"), 8);
    assert_eq!(fs::read(&path).expect("a file"), before, "nothing new, nothing written");
    // A VM below numa.vcpu.min has no topology to remember.
    assert_eq!(size("small", "--vcpus 8 --host new=8x1x4x2:64G"), 8);
    assert_eq!(fs::read(&path).expect("a file"), before);
    assert_eq!(size("web", "--vcpus 12 --host new=8x1x4x2:64G"), 4);
    let anew = "--vcpus 32 --host new=8x1x4x2:64G --autosize --autosize-once false";
    assert_eq!(size("db", anew), 4);
    let kept: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
    let of = |vm: &str| (kept["vms"][vm]["size"].clone(), kept["vms"][vm]["host"].clone());
    assert_eq!((of("db"), of("web")), ((4.into(), "new".into()), (4.into(), "new".into())));
    // Nothing else is left beside it.
    assert_eq!(fs::read_dir(path.parent().expect("a folder")).expect("a folder").count(), 1);
    // check reads it.
    let line = format!("check --name db --vcpus 32 --remember {file} --json 4x1x8x2");
    assert_eq!(json(&line)["virtual_nodes"].as_array().expect("a list").len(), 8);
    let (code, error) = refused(&format!("check --name x --vcpus 9 --remember {file} 1x1x8x1"));
    assert_eq!(code, 3);
    assert!(error.contains("vms.json: cannot find VM 'x': seen nothing of it"), "{error}");
}

#[test]
fn a_damaged_file_is_refused_and_left_as_it_is() {
    let path = folder("damaged").join("vms.json");
    let whole = r#"{"format":1,"vms":{"db":{"vcpus":32,"size":8,"host":"a","reason":"b"}}}"#;
    let cut = &whole[..whole.len() - 3];
    let other = whole.replace("\"format\":1", "\"format\":2");
    let key = whole.replace("reason", "why");
    let size = whole.replace("\"size\":8", "\"size\":9");
    let zero = whole.replace("\"size\":8", "\"size\":0");
    for (text, seen) in [
        ("", "EOF"),
        (cut, "EOF"),
        (&other, "format 2, not 1"),
        (&key, "unknown field `why`"),
        (&size, "seen a size of 9 for 32 vCPUs"),
        (&zero, "seen a size of 0 for 32 vCPUs"),
    ] {
        fs::write(&path, text).expect("a file");
        let file = path.display();
        let line =
            format!("plan --name db --vcpus 32 --memory 1G --host 4x1x8x1 --remember {file}");
        let (code, error) = refused(&line);
        assert_eq!(code, 3, "{text}: {error}");
        assert!(error.contains(seen), "{text}: {error}");
        assert_eq!(fs::read_to_string(&path).expect("a file"), text);
    }
    // A folder that is not there is said before anything is shown.
    let line = "plan --name db --vcpus 32 --memory 1G --host 4x1x8x1 --remember /no/such/vms.json";
    let (code, error) = refused(line);
    assert_eq!(code, 1);
    assert!(error.contains("/no/such/vms.json: cannot write what is remembered"), "{error}");
}

#[test]
fn check_says_what_each_host_makes_of_it_and_ends_with_6_where_vnuma_is_lost() {
    let (code, out, error) = ends("check --name db --vcpus 32 a=4x1x8x2 b=8x1x4x2 c=8x1x6x1");
    assert_eq!(code, 6);
    assert_eq!(
        out,
        "VM db: 32 vCPUs, virtual nodes: 4 of 8 vCPUs, as made on host a: a node of host a has room \
for 8 vCPUs, by its cores

host  nodes  room  virtual nodes   clients         cost
--------------------------------------------------------------------------------------------------------------------------------------------------------------------
a         4     8  fits            4 of 8          what is local for the guest is local on the host
b         8     4  2 clients each  8 of 4          memory of a virtual node is interleaved over 2 \
nodes: of what is local for the guest, 1 in 2 is local on the host
c         8     6  irreconcilable  2 of 6, 4 of 5  vNUMA has no effect: all memory is interleaved \
over the homes of 6 clients

fits on all: set 4 cores a virtual socket (cpuid.coresPerSocket); the smallest node has room for 4 \
vCPUs
"
    );
    assert_eq!(
        error,
        "tandem: VM 'db': cannot keep the effect of vNUMA on host c: seen virtual nodes of 8 vCPUs, \
        allowed 1..6 or a multiple of 6; set 4 cores a virtual socket (cpuid.coresPerSocket)\n"
    );
    // What is recommended fits.
    let found = json("check --vcpus 32 --cores-per-socket 4 --json a=4x1x8x2 b=8x1x4x2 c=8x1x6x1");
    let cases: Vec<_> = (0..3).map(|i| found["hosts"][i]["case"].clone()).collect();
    assert_eq!(cases, ["fits", "fits", "fits"]);
    assert_eq!(found["recommended"]["cores_per_socket"], 4);
    // Nodes that are there already, whatever their VM would get now.
    let there = json("check --vcpus 8 --size 4 --json 1x1x8x2 2x1x2x1");
    assert_eq!(there["virtual_nodes"], serde_json::json!([4, 4]));
    assert_eq!(there["hosts"][1]["case"]["multiple"]["clients"], 2);
    let odd = said("check --vcpus 13 1x1x16x2 2x1x8x2");
    assert!(odd.contains("fits on all: set numa.vcpu.maxPerVirtualNode 7;"), "{odd}");
    let few = said("check --vcpus 22 3x1x8x2");
    assert!(few.contains("set 2 cores a virtual socket"), "{few}");
    assert!(few.contains("or for fewer virtual nodes numa.vcpu.maxPerVirtualNode 8;"), "{few}");
}

#[test]
fn errors_name_the_object_what_was_seen_and_what_is_allowed() {
    let vm = "--vcpus 16 --memory 64G --host 2x1x8x2:64G";
    for (line, code, text) in [
        (
            "plan --vcpus 0 --memory 1G --host 2x1x8x2".to_owned(),
            3,
            "tandem: VM 'vm': cannot use vCPUs: seen 0, allowed 1..1024; correct it\n",
        ),
        (
            "plan --vcpus 16 --memory 1M --host 2x1x8x2".to_owned(),
            3,
            "tandem: VM 'vm': cannot divide 1 MiB among 2 virtual nodes: seen less than a MiB",
        ),
        (
            format!("plan {vm} --cores-per-socket 4 --max-per-virtual-node 4"),
            3,
            "tandem: VM 'vm': cannot size virtual nodes: seen cpuid.coresPerSocket 4 and ",
        ),
        (
            "plan --vcpus 4 --memory 1G --host x=2x1x8".to_owned(),
            3,
            "tandem: host x: cannot read '2x1x8': allowed SOCKETSxNODESxCORESxTHREADS[:MEMORY]",
        ),
        (
            "plan --vcpus 4 --memory 1G --host 0x1x8x2".to_owned(),
            3,
            "tandem: host 0x1x8x2: topology: cannot build a host: sockets: seen 0, allowed ",
        ),
        (
            "check --vcpus 4 nowhere".to_owned(),
            3,
            "tandem: host nowhere: cannot find it: seen 'nowhere' (scenario nowhere: cannot ",
        ),
        ("plan --vcpus 4 --memory 64".to_owned(), 2, "error: invalid value '64' for '--memory "),
        (format!("plan {vm} --remember x"), 2, "error: the following required arguments"),
        (format!("plan {vm} --xml --qemu"), 2, "error: the argument '--xml' cannot be used with"),
        (format!("plan {vm} --domain"), 2, "error: the following required arguments"),
        ("check --vcpus 4".to_owned(), 2, "error: the following required arguments"),
    ] {
        let (seen, error) = refused(&line);
        assert_eq!(seen, code, "{line}: {error}");
        assert!(error.starts_with(text), "{line}: {error}");
    }
}

#[test]
fn help_names_every_option_of_esxi_and_what_a_host_is() {
    let help = said("plan --help");
    for name in [
        "cpuid.coresPerSocket",
        "numa.vcpu.maxPerVirtualNode",
        "numa.vcpu.maxPerMachineNode",
        "numa.vcpu.min",
        "numa.vcpu.preferHT",
        "numa.autosize:",
        "numa.autosize.once",
    ] {
        assert!(help.contains(name), "{name}: {help}");
    }
    let about = said("--help");
    assert!(about.contains("SOCKETSxNODESxCORESxTHREADS[:MEMORY]"), "{about}");
    assert!(said("check --help").contains("Exit code 0: vNUMA has an effect on all hosts. 6: "));
}

/// Plans of every kind: each case, one node, pins or not, distances, names that need escapes.
fn plans(name: &str) -> Vec<String> {
    let host = sysfs(name);
    let mut plans: Vec<String> = [
        "--vcpus 32 --host 4x1x8x2",
        "--vcpus 32 --host 8x1x4x2 --max-per-virtual-node 8 --name a&<b>",
        "--vcpus 16 --host 3x1x6x2 --max-per-virtual-node 8",
        "--vcpus 15 --host 2x1x8x2",
        "--vcpus 4 --host 3x1x6x2",
        "--vcpus 8 --host 2x1x4x2",
        "--vcpus 12",
        "--vcpus 300 --host 8x1x64x1",
    ]
    .map(str::to_owned)
    .into();
    plans.push(format!("--vcpus 16 --host {host}"));
    plans.into_iter().map(|p| format!("plan --memory 512M {p}")).collect()
}

/// Names of elements that are open after this text; every tag that ends ends the last one.
fn open_after(xml: &str) -> Vec<String> {
    let mut open: Vec<String> = vec![];
    for tag in xml.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name: String = tag.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        if let Some(end) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(end), "{xml}");
        } else if !tag.ends_with('/') && !tag.starts_with('!') {
            open.push(name);
        }
        assert_eq!(tag.matches('\'').count() % 2, 0, "{tag}");
    }
    open
}

#[test]
fn xml_is_well_formed() {
    for plan in plans("well-formed") {
        for rest in ["--xml", "--xml --no-pin", "--xml --domain"] {
            let xml = said(&format!("{plan} {rest}"));
            assert_eq!(open_after(&xml), Vec::<String>::new(), "{xml}");
            assert_eq!(xml.contains("vcpupin"), !rest.contains("no-pin"));
            assert_eq!(xml.starts_with("<domain type='kvm'>\n"), rest.contains("domain"));
        }
    }
}

/// Whether a tool is in the path; else why a test is skipped.
fn has(tool: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|p| p.join(tool).is_file());
    if !found {
        println!("skipped: no {tool} in the path (Debian's package {package})");
    }
    found
}

#[test]
fn libvirts_schema_accepts_every_domain() {
    if !has("virt-xml-validate", "libvirt-clients") || !has("xmllint", "libxml2-utils") {
        return;
    }
    let file = folder("validate").join("domain.xml");
    for plan in plans("schema") {
        for rest in ["--xml --domain", "--xml --domain --no-pin"] {
            fs::write(&file, said(&format!("{plan} {rest}"))).expect("a file");
            let done = Command::new("virt-xml-validate").arg(&file).arg("domain").output();
            let done = done.expect("it starts");
            let error = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{plan} {rest}: {error}");
        }
    }
}

#[test]
fn qemu_accepts_the_arguments() {
    let tool = "qemu-system-x86_64";
    if !has(tool, "qemu-system-x86") || !has("timeout", "coreutils") {
        return;
    }
    for plan in plans("qemu").iter().filter(|p| !p.contains("--vcpus 300")) {
        let words = said(&format!("{plan} --qemu")).replace(" \\\n", " ");
        // This machine may have no node but 0.
        let words = words.split_whitespace().map(|w| {
            let mut parts: Vec<&str> =
                w.split(',').filter(|p| !p.starts_with("host-nodes=")).collect();
            if w.contains("host-nodes=") {
                parts.insert(1, "host-nodes=0");
            }
            parts.join(",")
        });
        let mut command = Command::new("timeout");
        command.args(["10", tool, "-display", "none", "-nodefaults", "-S", "-qmp", "stdio"]);
        let mut child = command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let orders = r#"{"execute":"qmp_capabilities"}{"execute":"quit"}"#;
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), orders.as_bytes())
            .unwrap_or_default();
        let done = child.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{plan}: {error}");
    }
}

/// A VM that runs is planned as its QEMU's command line says, found by name or process.
#[test]
fn a_vm_that_runs_is_planned_by_its_command_line() {
    let name = format!("tandem-test-{}", std::process::id());
    // A shell that waits stands for QEMU: only its command line is read.
    let mut machine = Command::new("sh")
        .arg0("qemu-system-x86_64")
        .args(["-c", "read line", "-name", &format!("guest={name},debug-threads=on")])
        .args(["-smp", "16,sockets=2,dies=1,cores=8,threads=1", "-m", "size=8388608k"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Its command line is there a moment after its program.
    let line = format!("/proc/{}/cmdline", machine.id());
    while std::fs::read(&line).is_ok_and(|line| line.is_empty()) {
        std::thread::yield_now();
    }
    let plan = |which: &str| json(&format!("plan --running {which} --host 2x1x8x2:64G --json"));
    for which in [name.clone(), machine.id().to_string()] {
        let vm = &plan(&which)["vm"];
        assert_eq!((vm["name"].as_str(), vm["vcpus"].as_u64()), (Some(&*name), Some(16)));
        assert_eq!((&vm["memory"], &vm["options"]["cores_per_socket"]), (&8192.into(), &8.into()));
    }
    let other = json(&format!("plan --running {name} --vcpus 4 --host 2x1x8x2:64G --json"));
    assert_eq!(other["vm"]["vcpus"], 4, "what is given holds");
    said(&format!("check --running {name} 2x1x8x2 4x1x8x2"));
    drop(machine.stdin.take());
    machine.wait().expect("it ends");
    let (code, error) = refused(&format!("plan --running {name} --host 2x1x8x2:64G"));
    assert_eq!(code, 3, "{error}");
    assert!(error.contains(&format!("VM '{name}': cannot find it: seen no QEMU")), "{error}");
    let (code, error) = refused("plan --host 2x1x8x2:64G");
    assert!(code != 0 && error.contains("--vcpus <N>"), "{error}");
}
