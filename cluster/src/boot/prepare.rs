//! From the command line to a plan: reads the cluster file, builds what is missing, and makes the plan.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
};

use anyhow::{Context, Result, bail};
use niclab_images::{Cache, DriverKernel, DriverModule, Images, OwnKernel, Progress, Request, Terminal};
use niclab_spec::{
    BootChoice, Cluster, ClusterFile, ClusterName, GuestKernel, MAX_BOOTED_NODES, NicModel, NodeEntry,
    Source, descriptors,
};

use crate::{
    arguments::ClusterArgs,
    host::runtime::RuntimeRoot,
    plan::{Inputs, Plan, accelerator::Accelerator, start::Start},
    programs::{Origin, Programs},
};

/// Folders of the guest's own system. A shared folder of the host must not cover them.
const GUEST_FOLDERS: [&str; 14] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr",
    "/var", "/root",
];

/// Number of nodes if neither arguments nor cluster file give one.
const DEFAULT_NODES: usize = 2;

/// The cluster that the arguments describe, with every value resolved.
///
/// # Errors
/// If the file or an argument is wrong; the message names the place and the fix.
pub fn cluster(args: &ClusterArgs) -> Result<Cluster> {
    let mut source = match &args.cluster {
        Some(path) => Source::read(path)?,
        None => Source::default(),
    };
    let mut file = source.cluster_file()?;
    if let Some(nodes) = args.nodes {
        file.nodes = Some(nodes);
        source.set_by_flag("nodes", "--nodes");
    }
    if let Some(memory_mib) = args.memory {
        file.memory_mib = memory_mib;
        source.set_by_flag("memory_mib", "--memory");
    }
    if let Some(vcpus) = args.vcpus {
        file.vcpus = vcpus;
        source.set_by_flag("vcpus", "--vcpus");
    }
    if let Some(queues) = args.queues {
        // For all nodes, as the file's own key.
        file.queues = queues;
        source.set_by_flag("queues", "--queues");
    }
    if let Some(rules) = args.rules {
        file.rules = rules;
    }
    if args.cold {
        file.boot = BootChoice::Cold;
    }
    if let Some(kernel) = &args.kernel {
        let is_name = kernel.as_os_str() == GuestKernel::DEBUG;
        let here = || env::current_dir().context("the current folder no longer exists");
        file.kernel = Some(if is_name { kernel.clone() } else { here()?.join(kernel) });
        source.set_by_flag("kernel", "--kernel");
    }
    if let Some(name) = &args.nic {
        file.nic.model = NicModel::named(name).with_context(|| {
            format!("--nic: there is no model `{name}`; use one of {}", NicModel::names().join(", "))
        })?;
    }
    if args.adversarial.is_some() {
        // Every card, also those with an entry of their own in the file.
        file.adversarial = args.adversarial;
        file.node.iter_mut().for_each(|node| node.adversarial = None);
    }
    drivers(args, &mut file, &mut source)?;
    if !args.packages.is_empty() {
        file.packages.clone_from(&args.packages);
        source.set_by_flag("packages", "--packages");
    }
    if let Some(name) = &args.name {
        file.name = Some(name.to_string());
        source.set_by_flag("name", "--name");
    }
    Ok(source.resolve_booted(&file)?)
}

/// Drivers that the command line names: for all nodes, or for one.
fn drivers(args: &ClusterArgs, file: &mut ClusterFile, source: &mut Source) -> Result<()> {
    let here = env::current_dir().context("the current folder no longer exists")?;
    for named in &args.driver {
        // A node's name has no slash, and a path with an equals sign can be written with one.
        let node = named.split_once('=').filter(|(node, _)| !node.contains('/'));
        let Some((node, path)) = node else {
            file.driver = Some(here.join(named));
            source.set_by_flag("driver", "--driver");
            continue;
        };
        let listed = file.node.iter().position(|entry| entry.name.as_deref() == Some(node));
        let numbered = || {
            node.strip_prefix("node")?.parse::<usize>().ok().filter(|rank| *rank < MAX_BOOTED_NODES as usize)
        };
        let nodes = file.nodes.map_or(file.node.len().max(DEFAULT_NODES), |nodes| nodes as usize);
        let rank = listed.or_else(numbered).filter(|rank| *rank < nodes);
        let rank = rank.with_context(|| format!("--driver {named}: there is no node `{node}`"))?;
        if file.node.len() <= rank {
            file.nodes = Some(nodes as u32);
            file.node.resize(rank + 1, NodeEntry::default());
        }
        if let Some(entry) = file.node.get_mut(rank) {
            entry.driver = Some(here.join(path));
        }
        source.set_by_flag(&format!("node[{rank}].driver"), "--driver");
    }
    if let Some(parameters) = &args.driver_args {
        file.driver_args.clone_from(parameters);
        source.set_by_flag("driver_args", "--driver-args");
    }
    Ok(())
}

/// Builds what is missing, templates included, and makes the plan of a cluster of this name. Starts no part of the
/// cluster.
///
/// # Errors
/// If something cannot be built, or the host's limits are too low for this number of nodes; the message has the fix.
pub fn plan(
    args: &ClusterArgs,
    cluster: &Cluster,
    name: &ClusterName,
    root: &RuntimeRoot,
    offline: bool,
) -> Result<Plan> {
    descriptors::check(cluster.nodes.iter().map(|node| node.queues), descriptors::hard_limit())?;
    let parts = Parts::gather(args, cluster, offline)?;
    let plan = parts.plan(name, root)?;
    let progress = Terminal::new();
    match plan.templates.iter().try_for_each(|template| template.ensure(&parts.cache, &progress)) {
        Ok(()) => {
            if let Some(obstacle) = &plan.start.obstacle {
                progress.note(&format!("the nodes boot: {obstacle}"));
            }
            Ok(plan)
        }
        Err(error) if cluster.boot == BootChoice::Template => {
            Err(error).context("the template cannot be built, and boot = \"template\" requires one")
        }
        Err(error) => {
            progress.note(&format!("the nodes boot, because the template cannot be built: {error}"));
            Parts { start: Start::cold(error.to_string()), ..parts }.plan(name, root)
        }
    }
}

/// The plan of a cluster. Builds nothing; only templates may be missing.
///
/// # Errors
/// If anything else is missing.
pub fn preview(
    args: &ClusterArgs,
    cluster: &Cluster,
    name: &ClusterName,
    root: &RuntimeRoot,
) -> Result<Plan> {
    Parts::gather(args, cluster, true)?.plan(name, root)
}

/// The inputs of a plan.
struct Parts<'a> {
    cluster: &'a Cluster,
    accelerator: Accelerator,
    start: Start,
    cache: Cache,
    programs: Programs,
    images: Vec<Images>,
    drivers: Vec<Option<DriverModule>>,
    share: Option<PathBuf>,
}

impl<'a> Parts<'a> {
    /// Builds what is missing.
    fn gather(args: &ClusterArgs, cluster: &'a Cluster, offline: bool) -> Result<Self> {
        let accelerator = Accelerator::choose(cluster.accelerator)?;
        log::info!("accelerator: {} ({})", accelerator.name(), accelerator.reason);
        let start = Start::choose(cluster, &accelerator)?;
        let progress = Terminal::new();
        let cache = Cache::locate()?;
        let own_kernel = own_kernel(cluster)?;
        let described = (cluster, own_kernel.as_ref());
        let programs = programs(args, cluster, &cache, offline, &progress)?;
        let images = images(args, described, &programs, &cache, offline, &progress)?;
        let drivers = own_drivers(described, &cache, &progress)?;
        let share = match &args.shared_folder {
            _ if args.no_share => None,
            Some(folder) => shareable(folder),
            None => shareable(&env::current_dir().context("the current folder no longer exists")?),
        };
        Ok(Self { cluster, accelerator, start, cache, programs, images, drivers, share })
    }

    fn plan(&self, name: &ClusterName, root: &RuntimeRoot) -> Result<Plan> {
        Ok(Plan::new(&Inputs {
            name,
            cluster: self.cluster,
            images: &self.images,
            drivers: &self.drivers,
            device: &self.programs.device,
            folder: &root.folder(name),
            accelerator: &self.accelerator,
            share: self.share.as_deref(),
            start: &self.start,
            cache: &self.cache,
        })?)
    }
}

/// The user's own kernel, if the cluster uses one.
fn own_kernel(cluster: &Cluster) -> Result<Option<OwnKernel>> {
    match &cluster.kernel {
        GuestKernel::Own(path) => Ok(Some(OwnKernel::at(path)?)),
        GuestKernel::Stock | GuestKernel::Debug => Ok(None),
    }
}

/// Builds the driver in folder `driver` for the guests' kernel, or for `kernel`. Writes module, header and compile
/// commands into a folder, and returns the paths of the files.
///
/// # Errors
/// If the driver does not build, or a file cannot be written.
pub fn build_driver(
    driver: &Path,
    kernel: Option<&Path>,
    mirror: Option<String>,
    offline: bool,
    into: &Path,
) -> Result<Vec<PathBuf>> {
    let (cache, progress) = (Cache::locate()?, Terminal::new());
    let is_debug_kernel = kernel.is_some_and(GuestKernel::is_debug);
    let own = kernel.filter(|_| !is_debug_kernel).map(OwnKernel::at).transpose()?;
    // The kernel's headers and the compiler come with the images.
    let request = Request { mirror, offline, is_debug_kernel, ..Request::default() };
    niclab_images::ensure(&cache, &request, &progress)?;
    let kernel = match &own {
        Some(own) => DriverKernel::Own(own),
        None if is_debug_kernel => DriverKernel::Debug,
        None => DriverKernel::Stock,
    };
    let here = env::current_dir().context("the current folder no longer exists")?;
    let module = niclab_images::ensure_driver(&cache, &here.join(driver), kernel, &progress)?;
    Ok(niclab_images::export_driver(&cache, &module, kernel, &here.join(into))?)
}

/// niclab's other programs, built once per run of `niclab`, for all clusters that it boots. A source tree builds them
/// while the images that contain none of them are downloaded and built.
fn programs(
    args: &ClusterArgs,
    cluster: &Cluster,
    cache: &Cache,
    offline: bool,
    progress: &dyn Progress,
) -> Result<Programs> {
    static FOUND: OnceLock<Programs> = OnceLock::new();
    if let Some(programs) = FOUND.get() {
        return Ok(programs.clone());
    }
    let programs = if matches!(Origin::find(), Origin::SourceTree(_)) {
        let building = thread::spawn(move || Programs::locate(offline, &Terminal::new()));
        let mirror = args.mirror.clone();
        let is_debug_kernel = cluster.kernel == GuestKernel::Debug;
        let request = Request { mirror, offline, is_debug_kernel, ..Request::default() };
        // If this fails, niclab ends without waiting for cargo, and cargo ends with it.
        niclab_images::ensure_base(cache, &request, progress)?;
        building.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
    } else {
        Programs::locate(offline, progress)?
    };
    Ok(FOUND.get_or_init(|| programs).clone())
}

/// The images of each node; nodes with the same packages share theirs.
fn images(
    args: &ClusterArgs,
    (cluster, own_kernel): (&Cluster, Option<&OwnKernel>),
    programs: &Programs,
    cache: &Cache,
    offline: bool,
    progress: &dyn Progress,
) -> Result<Vec<Images>> {
    let mut built: BTreeMap<&[String], Images> = BTreeMap::new();
    for node in &cluster.nodes {
        if built.contains_key(node.packages.as_slice()) {
            continue;
        }
        let request = Request {
            packages: node.packages.clone(),
            mirror: args.mirror.clone(),
            offline,
            kernel: own_kernel.map(|own| own.file.clone()),
            is_debug_kernel: cluster.kernel == GuestKernel::Debug,
            image: cluster.image.clone(),
            // niclab does not parse extra QEMU arguments; they may add a disk.
            has_disks: !cluster.qemu_args.is_empty(),
            tools: programs.guest.clone(),
        };
        let mut images = niclab_images::ensure(cache, &request, progress)?;
        if let Some(release) = own_kernel.and_then(|own| own.release.clone()) {
            images.kernel_release = release;
        }
        built.insert(&node.packages, images);
    }
    cluster
        .nodes
        .iter()
        .map(|node| match built.get(node.packages.as_slice()) {
            Some(images) => Ok(images.clone()),
            None => bail!("no image was built for {}", node.name),
        })
        .collect()
}

/// The driver module of each node that has a driver of the user's; nodes with the same driver share one build.
fn own_drivers(
    (cluster, own_kernel): (&Cluster, Option<&OwnKernel>),
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<Vec<Option<DriverModule>>> {
    let kernel = match (&cluster.kernel, own_kernel) {
        (GuestKernel::Debug, _) => DriverKernel::Debug,
        (_, Some(own)) => DriverKernel::Own(own),
        (_, None) => DriverKernel::Stock,
    };
    let mut built: BTreeMap<&Path, DriverModule> = BTreeMap::new();
    let mut of_nodes = Vec::new();
    for node in &cluster.nodes {
        let Some(driver) = &node.driver else {
            of_nodes.push(None);
            continue;
        };
        let module = match built.get(driver.path.as_path()) {
            Some(module) => module.clone(),
            None => niclab_images::ensure_driver(cache, &driver.path, kernel, progress)?,
        };
        built.insert(&driver.path, module.clone());
        of_nodes.push(Some(module));
    }
    Ok(of_nodes)
}

/// The folder, if guests can mount it at the same path without covering their own system.
fn shareable(folder: &Path) -> Option<PathBuf> {
    let covered = |guest: &str| {
        let guest = Path::new(guest);
        // A folder below /tmp, /root or /var may be shared. One of these folders themselves, a folder above them, or a
        // system folder may not: the mount would cover the guest's files there.
        let may_hold_work = ["/tmp", "/root", "/var", "/run"].iter().any(|path| guest == Path::new(path));
        guest.starts_with(folder) || (folder.starts_with(guest) && !may_hold_work)
    };
    if GUEST_FOLDERS.iter().any(|guest| covered(guest)) {
        log::warn!("{} is not shared with the guests: it would cover their own system", folder.display());
        return None;
    }
    Some(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_folders_are_shared_and_system_folders_are_not() {
        for folder in ["/home/me/work", "/tmp/x", "/root/x", "/srv", "/var/lib/ci", "/opt/build"] {
            assert!(shareable(Path::new(folder)).is_some(), "{folder}");
        }
        for folder in ["/", "/tmp", "/root", "/usr", "/usr/src/x", "/etc", "/dev/shm", "/proc/self"] {
            assert!(shareable(Path::new(folder)).is_none(), "{folder}");
        }
    }

    #[test]
    fn arguments_win_over_the_file_and_are_named_in_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "nodes = 2\nmemory_mib = 512\n").unwrap();
        let args = ClusterArgs { cluster: Some(path), nodes: Some(3), ..ClusterArgs::default() };
        let resolved = cluster(&args).unwrap();
        assert_eq!((resolved.nodes.len(), resolved.nodes[0].memory_mib), (3, 512));
        for (args, word) in [
            (ClusterArgs { nodes: Some(0), ..ClusterArgs::default() }, "--nodes"),
            (ClusterArgs { memory: Some(1), ..ClusterArgs::default() }, "--memory"),
            (ClusterArgs { nic: Some("abc".into()), ..ClusterArgs::default() }, "--nic"),
            (ClusterArgs { packages: vec!["--x".into()], ..ClusterArgs::default() }, "--packages"),
        ] {
            assert!(cluster(&args).unwrap_err().to_string().contains(word), "{word}");
        }
    }
}
