# One server on one machine with GPUs: the instance, a disk that outlives it, and a firewall. Not applied: see README.md.

data "aws_subnet" "chosen" {
  id = var.subnet_id
}

# Ubuntu with NVIDIA's driver
data "aws_ssm_parameter" "image" {
  name = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
}

resource "aws_security_group" "server" {
  name_prefix = "tardigrade-"
  description = "HTTP of a Tardigrade server, for its clients"
  vpc_id      = data.aws_subnet.chosen.vpc_id

  ingress {
    description = "HTTP"
    protocol    = "tcp"
    from_port   = 8000
    to_port     = 8000
    cidr_blocks = var.client_cidrs
  }

  egress {
    description = "Packages and models"
    protocol    = "-1"
    from_port   = 0
    to_port     = 0
    cidr_blocks = ["0.0.0.0/0"]
  }
}

# Journals, keys and models: a new instance finds them, and goes on with what was accepted.
resource "aws_ebs_volume" "state" {
  availability_zone = data.aws_subnet.chosen.availability_zone
  size              = var.state_gib
  type              = "gp3"
  encrypted         = true
  tags              = { Name = "tardigrade-state" }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_instance" "server" {
  ami                    = data.aws_ssm_parameter.image.value
  instance_type          = var.instance_type
  subnet_id              = var.subnet_id
  vpc_security_group_ids = [aws_security_group.server.id]
  tags                   = { Name = "tardigrade" }

  user_data_replace_on_change = true
  user_data = templatefile("${path.module}/cloud-init.yaml.tftpl", {
    release = var.release
    model   = var.model
    volume  = replace(aws_ebs_volume.state.id, "-", "")
    service = file("${path.module}/../systemd/tardigrade.service")
  })

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    volume_size = 100
    volume_type = "gp3"
    encrypted   = true
  }
}

resource "aws_volume_attachment" "state" {
  device_name                    = "/dev/sdf"
  volume_id                      = aws_ebs_volume.state.id
  instance_id                    = aws_instance.server.id
  stop_instance_before_detaching = true
}

output "url" {
  description = "Of the server, for the addresses in client_cidrs"
  value       = "http://${aws_instance.server.private_ip}:8000/v1"
}
