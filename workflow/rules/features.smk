# Data, ResNet-18 weights and embeddings of images, and the trials of series. Only the fetching rules, which are local, use the network.
# Required: nothing. Made: results/features/{workload}/features.json and, beside it, the folder that it names.


localrules:
    fetch_mnist,
    fetch_imagenet,
    fetch_eegmmidb,


rule fetch_mnist:
    """Download the four original MNIST files and verify their checksums."""
    output:
        "results/data/mnist/train-images-idx3-ubyte.gz",
        "results/data/mnist/train-labels-idx1-ubyte.gz",
        "results/data/mnist/t10k-images-idx3-ubyte.gz",
        "results/data/mnist/t10k-labels-idx1-ubyte.gz",
    log:
        "results/data/mnist/fetch.log",
    conda:
        "../../envs/ketscale.yaml"
    shell:
        "ketscale features fetch-mnist results/data/mnist > {log:q} 2>&1"


# One job and one process for all files: MNE's downloads of several processes get in each other's way.
rule fetch_eegmmidb:
    """Download the EDF files of the configured subjects and runs from PhysioNet."""
    output:
        eegmmidb_files(),
    log:
        "results/data/eegmmidb/fetch.log",
    conda:
        "../../envs/ketscale.yaml"
    params:
        chosen=eegmmidb_options(),
    shell:
        "ketscale features fetch-eegmmidb results/data/eegmmidb {params.chosen} > {log:q} 2>&1"


rule fetch_imagenet:
    """Get the weights of microsoft/resnet-18 from a local folder, the hub's cache or the hub."""
    output:
        "results/features/imagenet.safetensors",
    log:
        "results/features/imagenet.log",
    conda:
        "../../envs/ketscale.yaml"
    resources:
        folder=imagenet_option,
    shell:
        "ketscale features fetch-imagenet {output:q} {resources.folder} > {log:q} 2>&1"


# A source file may lie anywhere on this machine, so its time says nothing (ancient) and its folder is no param:
# only --forcerun reads changed data again.
rule pretrain:
    """Train ResNet-18 on the workload's training images without labels."""
    input:
        ancient(source_files),
    output:
        "results/features/{workload}/weights-selfsupervised.safetensors",
    log:
        "results/features/{workload}/pretrain.log",
    conda:
        "../../envs/ketscale.yaml"
    resources:
        **FEATURES,
        source=source_option,
        host=HOST,
    params:
        settings=workload_settings,
    shell:
        "ketscale features pretrain {wildcards.workload} --settings {params.settings:q} {resources.source}"
        " --out {output:q} > {log:q} 2>&1"


# The embeddings lie beside the manifest in a folder named by their hash, which nobody knows before they are
# computed; so the manifest alone is declared. It is small, and Snakemake compares its content, not its time.
rule compute_features:
    """Embed every image of the workload once with the frozen ResNet-18."""
    input:
        sources=ancient(source_files),
        weights=weights_file,
    output:
        "results/features/{workload}/features.json",
    log:
        "results/features/{workload}/features.log",
    wildcard_constraints:
        workload="|".join(GIVING["images"]),
    conda:
        "../../envs/ketscale.yaml"
    resources:
        **FEATURES,
        source=source_option,
        host=HOST,
    params:
        settings=workload_settings,
    shell:
        "ketscale features compute {wildcards.workload} --settings {params.settings:q} {resources.source}"
        " --weights {input.weights:q} --out {output:q} > {log:q} 2>&1"


rule prepare:
    """Put the trials of series, or sentences, into arrays, and split them."""
    input:
        ancient(source_files),
    output:
        "results/features/{workload}/features.json",
    log:
        "results/features/{workload}/features.log",
    wildcard_constraints:
        workload="|".join(GIVING["series"] + GIVING["sentences"]),
    conda:
        "../../envs/ketscale.yaml"
    resources:
        **FEATURES,
        source=source_option,
        host=HOST,
    params:
        settings=workload_settings,
    shell:
        "ketscale features prepare {wildcards.workload} --settings {params.settings:q} {resources.source}"
        " --out {output:q} > {log:q} 2>&1"
