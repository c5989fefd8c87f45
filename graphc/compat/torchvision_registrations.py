"""torchvision._meta_registrations and torchvision._autograd_registrations, for an installed
torchvision: what types and gradients its operators have, graphc's own operators say."""
